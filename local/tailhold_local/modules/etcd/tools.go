//go:build tools

// Package etcd pins the command that the local cluster is built from.
package etcd

import _ "go.etcd.io/etcd/server/v3"
