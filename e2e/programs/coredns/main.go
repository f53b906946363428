// Command coredns is CoreDNS with the plugins that kubeadm's Corefile names, rewrite, with which docs/services.md has
// names below clusterset.local found, and bind, which tests need. Built with all plugins, it needs many more modules.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/rewrite"
)

func main() {
	// The order in which a query meets the plugins.
	dnsserver.Directives = []string{
		"reload", "bind", "health", "ready", "prometheus", "errors", "loadbalance", "cache", "rewrite", "kubernetes", "loop", "forward",
	}
	coremain.Run()
}
