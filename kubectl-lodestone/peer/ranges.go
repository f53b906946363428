package peer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/podranges"
)

// podRanges returns the ranges from which a cluster gives its pods their addresses, as far as it says:
// that of kubeadm, else those of its nodes; none if it says nothing, or the user may not read it.
func podRanges(ctx context.Context, cluster *cli.Cluster) podranges.Ranges {
	var nodes []corev1.Node
	if list, err := cluster.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		nodes = list.Items
	}
	settings := ""
	if found, err := cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "kubeadm-config", metav1.GetOptions{}); err == nil {
		settings = found.Data["ClusterConfiguration"]
	}
	return learn(nodes, settings)
}

// learn returns the pod ranges that nodes and the settings of kubeadm tell. A node that comes later gets
// a range of its own, so kubeadm's counts if it covers those of all nodes.
func learn(nodes []corev1.Node, settings string) podranges.Ranges {
	var found podranges.Ranges
	for i := range nodes {
		texts := nodes[i].Spec.PodCIDRs
		if len(texts) == 0 && nodes[i].Spec.PodCIDR != "" {
			texts = []string{nodes[i].Spec.PodCIDR}
		}
		if ranges, err := podranges.Parse(texts); err == nil {
			found = append(found, ranges...)
		}
	}
	var kubeadm struct {
		Networking struct {
			PodSubnet string `json:"podSubnet"`
		} `json:"networking"`
	}
	if yaml.Unmarshal([]byte(settings), &kubeadm) == nil && kubeadm.Networking.PodSubnet != "" {
		whole, err := podranges.Parse(strings.Split(kubeadm.Networking.PodSubnet, ","))
		if err == nil && !slices.ContainsFunc(found, func(one netip.Prefix) bool { return !whole.HasRange(one) }) {
			return whole
		}
	}
	slices.SortFunc(found, netip.Prefix.Compare)
	return slices.Compact(found)
}

// chooseRanges sets the pod ranges of the plan. Only the user gives a cluster its ranges: what it says
// itself is shown, and taken over when the user repeats it.
func (p *Plan) chooseRanges(o Options, s Situation) error {
	var have []string
	routed := o.PodNetwork == string(v1alpha1.Routed)
	if p.Remote != nil {
		have = p.Remote.Spec.PodCIDRs
		routed = routed || o.PodNetwork == "" && p.Remote.Spec.PodNetwork == v1alpha1.Routed
	}
	wanted, err := podranges.Parse(o.PodCIDRs)
	switch {
	case err != nil:
		return cli.Misuse("--pod-cidrs: %w", err)
	case len(wanted) > 0 && !routed:
		return cli.Misuse("--pod-cidrs is for clusters whose pods reach each other: give --pod-network Routed too, or leave it out")
	case !routed || len(wanted) == 0 && len(have) > 0:
		return nil
	case len(wanted) == 0 && o.PodNetwork == "":
		// The peering is from before ranges were asked for.
		p.Notes = append(p.Notes, fmt.Sprintf("new pods in the cluster of context %q get no address at home, because %s has no pod ranges: %s",
			s.RemoteContext, describe(p.Name), confirm(s)))
		return nil
	case len(wanted) == 0:
		return cli.Misuse("which addresses pods in the cluster of context %q have must be said, for Services at home will send there: %s",
			s.RemoteContext, confirm(s))
	}
	if own, other, overlap := wanted.Overlap(s.HomeRanges); overlap {
		return cli.Refuse("--pod-cidrs %s overlaps with %s, from which pods at home have their addresses, so neither could be told from the "+
			"other: leave out --pod-network, or give one of the clusters another range", own, other)
	}
	for i := range s.Remotes {
		other := &s.Remotes[i]
		if other.Name == p.Name {
			continue
		}
		// What cannot be read was refused when it was written.
		theirs, _ := podranges.Parse(other.Spec.PodCIDRs)
		if own, theirOwn, overlap := wanted.Overlap(theirs); overlap {
			return cli.Refuse("--pod-cidrs %s overlaps with %s of %s, so pods of one could take the addresses of the other: give ranges that are "+
				"the cluster's own", own, theirOwn, describe(other.Name))
		}
	}
	for _, learned := range s.RemoteRanges {
		if !wanted.HasRange(learned) {
			p.Notes = append(p.Notes, fmt.Sprintf("the cluster of context %q says that pods there have addresses from %s, which is in none of "+
				"--pod-cidrs: they get no address at home", s.RemoteContext, learned))
		}
	}
	return nil
}

// confirm says how to give a cluster its ranges.
func confirm(s Situation) string {
	if len(s.RemoteRanges) == 0 {
		return "its nodes do not tell, so ask whoever set up its pod network, and give them with --pod-cidrs"
	}
	texts := make([]string, len(s.RemoteRanges))
	for i, one := range s.RemoteRanges {
		texts[i] = one.String()
	}
	return fmt.Sprintf("it says itself that they are from %s; if that is right, add --pod-cidrs %s", strings.Join(texts, " and "),
		strings.Join(texts, ","))
}
