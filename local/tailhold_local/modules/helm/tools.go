//go:build tools

// Package helm pins the command that the local cluster is built from.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
