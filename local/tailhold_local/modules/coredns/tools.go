//go:build tools

// Package coredns pins the command that the local cluster is built from.
package coredns

import _ "github.com/coredns/coredns"
