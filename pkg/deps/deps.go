// Package deps keeps requirements while the code that needs them is written.
package deps

import (
	_ "github.com/virtual-kubelet/virtual-kubelet/node"
	_ "k8s.io/apimachinery/pkg/util/proxy"
	_ "k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/cli-runtime/pkg/printers"
)
