package doctor

import (
	"fmt"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
)

// Installation is what is installed in a cluster, and what its rights and its optional components depend on.
type Installation struct {
	install.State
	// Compared is how many roles and bindings there are to be, Rights those that differ.
	Compared int
	Rights   []install.Difference
	// ServiceExports and ClusterProfiles say that the API server serves these.
	ServiceExports, ClusterProfiles bool
	// Corefile is what CoreDNS is configured by; empty where there is none.
	Corefile string
	// Gateway says that a node is one of the network fabric.
	Gateway bool
	// Unread is why nothing is known of it.
	Unread string
}

// sides are the clusters that were looked at, with how a command reaches them and how sentences name them.
func sides(f Facts) (all []side) {
	all = []side{{Installation: f.Home}}
	if f.Remote != nil {
		all = append(all, side{f.There, " --remote", " in the remote cluster"})
	}
	return all
}

type side struct {
	Installation
	flag, where string
}

// unread is the finding for a cluster of which nothing could be read; none if it was.
func (s side) unread() []Finding {
	if s.Unread == "" {
		return nil
	}
	return []Finding{{Level: Warning, Says: "nothing was compared" + s.where + ": " + s.Unread,
		Do: "ask an administrator of it to run this command, or mend what it says"}}
}

// rights finds roles and bindings that give less or more than those of this plugin.
func rights(f Facts) (found []Finding) {
	compared := 0
	for _, s := range sides(f) {
		found = append(found, s.unread()...)
		compared += s.Compared
		for _, d := range s.Rights {
			found = append(found, Finding{Level: severity(d), Says: inWords(d, f.Plugin, s.where), Do: s.remedy(d)})
		}
	}
	switch {
	case len(found) > 0:
		return found
	case compared == 0:
		return ok("nothing is installed whose roles could be compared")
	}
	return ok("%d roles and bindings give what those of this plugin give", compared)
}

// severity of a difference: what a program lacks it cannot do.
func severity(d install.Difference) Level {
	if d.Absent || len(d.Lacks) > 0 {
		return Problem
	}
	return Warning
}

func inWords(d install.Difference, plugin, where string) string {
	var parts []string
	if len(d.Lacks) > 0 {
		parts = append(parts, "lacks "+some(d.Lacks))
	}
	if len(d.More) > 0 {
		parts = append(parts, "gives "+some(d.More)+" too much")
	}
	text := strings.Join(parts, ", and ") + ", compared with this plugin, " + plugin
	switch {
	case d.Absent:
		text = "is missing"
	case d.Unused:
		text = "is there, and nothing that is installed needs it"
	}
	return d.Object + where + " " + text
}

// remedy says what brings a role or a binding in line.
func (s side) remedy(d install.Difference) string {
	kind, name, _ := strings.Cut(d.Object, " ")
	namespace, inside, namespaced := strings.Cut(name, "/")
	if namespaced {
		name = inside + " -n " + namespace
	}
	switch {
	case d.Unused:
		return fmt.Sprintf("kubectl delete %s %s%s takes it away", strings.ToLower(kind), name, s.where)
	case d.Release != "":
		return "helm upgrade " + d.Release + " with the chart of this version puts it right" + s.where
	case s.Recorded:
		return "kubectl lodestone install" + s.flag + " --force-conflicts puts it right"
	}
	return "kubectl apply --server-side --force-conflicts -k of your overlay with the manifests of this version, or your GitOps tool, " +
		"puts it right" + s.where
}

// components finds what optional components that are installed need, and do not have.
func components(f Facts) (found []Finding) {
	var all []string
	for _, s := range sides(f) {
		add := func(level Level, says, do string) {
			found = append(found, Finding{Level: level, Says: says + s.where, Do: do})
		}
		if ptr.Deref(s.Values.Network, false) {
			all = append(all, "network"+s.where)
			if !s.Gateway {
				add(Problem, "no node is a gateway of the network", "kubectl label node NODE lodestone.dev/gateway=enabled"+s.where+
					" makes one, and there are to be two (docs/network.md#set-it-up)")
			}
		}
		if ptr.Deref(s.Values.Services, false) {
			all = append(all, "services"+s.where)
			if !s.ServiceExports {
				add(Problem, "no Services are shared, because the API server serves no ServiceExports", "apply the definitions of the Multi-Cluster "+
					"Services API"+s.where+" (docs/services.md#set-it-up)")
			}
			if !install.FindsShared(s.Corefile) {
				add(Warning, "CoreDNS has no lines for names below clusterset.local", "kubectl edit configmap coredns -n kube-system"+s.where+
					" adds them; if another DNS finds these names, this means nothing (docs/services.md#names)")
			}
		}
		if ptr.Deref(s.Values.ClusterProfiles, false) {
			all = append(all, "cluster-profiles")
			if !s.ClusterProfiles {
				add(Problem, "no remote cluster is shown as a ClusterProfile, because the API server serves none", "apply their definition "+
					"(docs/remote-clusters.md#clusterprofiles)")
			}
		}
	}
	switch {
	case len(found) > 0:
		return found
	case len(all) == 0:
		return ok("no optional component is installed")
	}
	return ok("what is installed has what it needs: %s", strings.Join(all, ", "))
}
