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
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// maxHomeID is the longest name of a HomeCluster.
const maxHomeID = 40

// Situation is the state of both clusters before anything is done.
type Situation struct {
	HomeContext, RemoteContext string
	HomeUID, RemoteUID         string
	// ProvisionerID is the cluster ID in the flags of home's provisioner, empty if it uses the
	// default or cannot be read.
	ProvisionerID string
	Remotes       []v1alpha1.RemoteCluster
	// Homes are the HomeClusters in the remote cluster, Guests those at home.
	Homes, Guests []remotev1alpha1.HomeCluster
	// HomeRanges and RemoteRanges are the ranges from which pods of the two clusters have their
	// addresses, as far as the clusters say.
	HomeRanges, RemoteRanges remotecluster.PodRanges
	// HomeHosts and RemoteHosts are the addresses of nodes of the two clusters and the ranges of their Services, as far as they say.
	HomeHosts, RemoteHosts remotecluster.PodRanges
}

// Plan is the result of Decide: what a peering is to be.
type Plan struct {
	Name, HomeID string
	Auth         string
	Strategy     v1alpha1.NamespaceStrategy
	// Remote and Home are the objects that exist already, nil if they do not.
	Remote *v1alpha1.RemoteCluster
	Home   *remotev1alpha1.HomeCluster
	Secret v1alpha1.SecretKeyRef
	// Network is what the remote cluster lets in of the network fabric, nil for nothing.
	Network *remotev1alpha1.NetworkPolicy
	// Translations are of pods there, as home reaches them; HomeTranslations of those at home, as the remote cluster does.
	Translations, HomeTranslations remotecluster.Translations
	// Notes are sentences that the user should read.
	Notes []string
}

// User returns the user name of home in the remote cluster.
func (p Plan) User() string {
	if p.Auth == Certificate {
		return keys.HomeUserPrefix + p.HomeID
	}
	return "system:serviceaccount:" + p.Tenant() + ":" + keys.HomeAccount
}

// Tenant returns home's tenant namespace in the remote cluster.
func (p Plan) Tenant() string { return keys.TenantPrefix + p.HomeID }

// Decide returns what to do, or an error that says why nothing must be done. It is pure.
func Decide(o Options, s Situation) (Plan, error) {
	if s.HomeUID == s.RemoteUID {
		return Plan{}, cli.Refuse("contexts %q and %q lead to the same cluster, and a cluster cannot be its own remote cluster: give the "+
			"--remote-context of another", s.HomeContext, s.RemoteContext)
	}
	plan := Plan{}
	var err error
	if plan.HomeID, err = homeID(o, s); err != nil {
		return Plan{}, err
	}
	if plan.Remote, err = findRemote(o, s); err != nil {
		return Plan{}, err
	}
	if plan.Home, err = findHome(plan.HomeID, s); err != nil {
		return Plan{}, err
	}
	if plan.Remote != nil {
		plan.Name, plan.Secret = plan.Remote.Name, plan.Remote.Spec.KubeconfigSecretRef
	} else {
		if o.Renew {
			return Plan{}, fmt.Errorf("there is no peering with the cluster of context %q to renew: run the same command without --renew",
				s.RemoteContext)
		}
		if plan.Name = o.Name; plan.Name == "" {
			if plan.Name, err = nameFor(s.RemoteContext); err != nil {
				return Plan{}, err
			}
		}
		plan.Secret = v1alpha1.SecretKeyRef{Namespace: o.Namespace, Name: plan.Name, Key: "kubeconfig"}
	}
	if r := plan.Remote; r != nil && plan.Home == nil && r.Status.Volumes > 0 && r.Annotations[keys.ClusterUID] == "" {
		return Plan{}, cli.Refuse("%s holds %d volumes in namespaces that were made by hand, to which an identity that the remote agent makes "+
			"has no rights: delete or move those volumes and unpeer first, or go on without the agent (deploy/remote-volumes)", describe(r.Name),
			r.Status.Volumes)
	}
	if plan.Auth = o.Auth; plan.Auth == "" {
		plan.Auth = Token
		if plan.Home != nil && plan.Home.Spec.User != "" {
			plan.Auth = Certificate
		}
	}
	if err := plan.setStrategy(o, s); err != nil {
		return Plan{}, err
	}
	if err := plan.chooseRanges(o, s); err != nil {
		return Plan{}, err
	}
	if err := plan.chooseTerms(o, s); err != nil {
		return Plan{}, err
	}
	for _, guest := range s.Guests {
		if guest.Spec.ClusterUID == s.RemoteUID {
			plan.Notes = append(plan.Notes, fmt.Sprintf("the cluster of context %q already is a home cluster to this one (HomeCluster %q here): "+
				"from now on both directions work, each by itself", s.RemoteContext, guest.Name))
		}
	}
	return plan, nil
}

// homeID returns the ID of home in the remote cluster.
func homeID(o Options, s Situation) (string, error) {
	id := cli.DefaultID(s.HomeUID)
	if s.ProvisionerID != "" {
		id = s.ProvisionerID
	}
	if o.HomeID != "" {
		if s.ProvisionerID != "" && o.HomeID != s.ProvisionerID {
			return "", cli.Refuse("--home-id %q is not the ID that the provisioner uses, %q (its flag --cluster-id), so its volumes would not be "+
				"known as home's: leave out --home-id", o.HomeID, s.ProvisionerID)
		}
		id = o.HomeID
	}
	if len(id) > maxHomeID {
		return "", cli.Refuse("the home cluster's ID %q is longer than the %d characters that a HomeCluster may have: give the provisioner a "+
			"shorter --cluster-id, which is possible only before it has made volumes", id, maxHomeID)
	}
	return id, nil
}

// findRemote returns the RemoteCluster that stands for the remote cluster, nil
// if there is none.
func findRemote(o Options, s Situation) (*v1alpha1.RemoteCluster, error) {
	name := o.Name
	if name == "" {
		name = s.RemoteContext
	}
	var found *v1alpha1.RemoteCluster
	for i := range s.Remotes {
		r := &s.Remotes[i]
		if clusterUIDOf(r) != s.RemoteUID {
			continue
		}
		if o.Name != "" && r.Name != o.Name {
			return nil, cli.Refuse("the cluster of context %q is peered already, as %q: leave out --name to go on with that peering, or unpeer it "+
				"first (kubectl lodestone unpeer %s)", s.RemoteContext, r.Name, r.Name)
		}
		found = r
	}
	if found == nil {
		return nil, checkName(name, s)
	}
	if found.DeletionTimestamp != nil {
		return nil, cli.Refuse("%s is being removed: wait until it is gone (kubectl lodestone unpeer %s), then peer again", describe(found.Name),
			found.Name)
	}
	return found, nil
}

// checkName says why a name cannot be that of the remote cluster.
func checkName(name string, s Situation) error {
	for i := range s.Remotes {
		r := &s.Remotes[i]
		switch {
		case r.Name != name:
		case clusterUIDOf(r) == "":
			return cli.Refuse("%s exists, but nobody has found out yet which cluster it leads to: wait until kubectl lodestone status shows it "+
				"Ready, delete it, or give another --name", describe(name))
		default:
			return cli.Refuse("%s stands for another cluster than that of context %q: give another --name, or correct --remote-context",
				describe(name), s.RemoteContext)
		}
	}
	return nil
}

// clusterUIDOf returns the UID of the cluster that a RemoteCluster was made for or reaches.
func clusterUIDOf(r *v1alpha1.RemoteCluster) string {
	if r.Status.ClusterUID != "" {
		return r.Status.ClusterUID
	}
	return r.Annotations[keys.ClusterUID]
}

// findHome returns the HomeCluster of home in the remote cluster, nil if there is
// none.
func findHome(id string, s Situation) (*remotev1alpha1.HomeCluster, error) {
	var found *remotev1alpha1.HomeCluster
	for i := range s.Homes {
		h := &s.Homes[i]
		switch {
		case h.Name == id && h.Spec.ClusterUID != "" && h.Spec.ClusterUID != s.HomeUID:
			return nil, cli.Refuse("the cluster of context %q already serves another home cluster of the ID %q: two homes cannot share an ID, so "+
				"give one of them a --cluster-id (flag of its provisioner, before it makes volumes)", s.RemoteContext, id)
		case h.Name == id:
			found = h
		case h.Spec.ClusterUID == s.HomeUID:
			return nil, cli.Refuse("the cluster of context %q already knows this home cluster by another ID, %q: its volumes there would not be "+
				"found under %q; put back --cluster-id of the provisioner, or delete HomeCluster %q there if nothing is left of it", s.RemoteContext,
				h.Name, id, h.Name)
		}
	}
	if found != nil && found.DeletionTimestamp != nil {
		return nil, cli.Refuse("HomeCluster %q is being removed in the cluster of context %q: wait until it is gone there (kubectl get "+
			"homeclusters), then peer again", id, s.RemoteContext)
	}
	return found, nil
}

func (p *Plan) setStrategy(o Options, s Situation) error {
	wanted := v1alpha1.NamespaceStrategy(o.Strategy)
	if p.Remote != nil {
		if p.Strategy = p.Remote.Spec.Namespaces.Strategy; p.Strategy == "" {
			p.Strategy = v1alpha1.SameName
		}
		if wanted != "" && wanted != p.Strategy {
			return cli.Refuse("the namespace strategy of %s is %s and cannot be changed, since its volumes would be looked for in other "+
				"namespaces: leave out --namespace-strategy, or unpeer first", describe(p.Name), p.Strategy)
		}
		if p.Strategy == v1alpha1.SameName && !p.listsNames(o) {
			p.Notes = append(p.Notes, fmt.Sprintf("the HomeCluster in the cluster of context %q lists no namespaces, so home gets no "+
				"new ones there: "+
				"give --namespaces with those that it may have", s.RemoteContext))
		}
		return nil
	}
	others := len(s.Homes)
	if p.Home != nil {
		others--
	}
	switch {
	case wanted == v1alpha1.SameName && !p.listsNames(o):
		return cli.Refuse("with --namespace-strategy SameName home gets only namespaces whose names the owner of the remote " +
			"cluster lists: give " +
			"--namespaces, such as 'shop-*'")
	case wanted != "":
		p.Strategy = wanted
	case others > 0:
		p.Strategy = v1alpha1.Suffixed
		p.Notes = append(p.Notes, fmt.Sprintf("the cluster of context %q serves %s, so namespaces there are called <namespace>-%s "+
			"(--namespace-strategy SameName for the same names)", s.RemoteContext, cli.Number(others, "other home cluster"), p.HomeID))
	case p.listsNames(o):
		p.Strategy = v1alpha1.SameName
	default:
		p.Strategy = v1alpha1.Suffixed
		p.Notes = append(p.Notes, fmt.Sprintf("namespaces in the cluster of context %q are called <namespace>-%s, since it is not listed which "+
			"names home may have there (--namespaces 'shop-*' for the same names)", s.RemoteContext, p.HomeID))
	}
	return nil
}

// listsNames reports whether the HomeCluster lists names of namespaces, or will.
func (p *Plan) listsNames(o Options) bool {
	return len(o.Namespaces) > 0 || p.Home != nil && len(p.Home.Spec.Namespaces.Names) > 0
}

// nameFor returns the name of a RemoteCluster for the cluster of a context, if no flag sets one.
func nameFor(context string) (string, error) {
	if !validName(context) {
		return "", cli.Misuse("the context name %q cannot be the name of a cluster: give one with --name (up to 63 lower-case letters, "+
			"digits and '-')", context)
	}
	return context, nil
}

// describe returns the name of a RemoteCluster in messages.
func describe(name string) string { return fmt.Sprintf("RemoteCluster %q", name) }

// podRanges returns the ranges from which a cluster gives its pods their addresses, as far as it says:
// that of kubeadm, else those of its nodes; none if it says nothing, or the user may not read it.
func podRanges(ctx context.Context, cluster *cli.Cluster) remotecluster.PodRanges {
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

// hosts returns the addresses of a cluster's nodes and the ranges of its Services, as far as it says.
func hosts(ctx context.Context, cluster *cli.Cluster) remotecluster.PodRanges {
	var nodes []corev1.Node
	if list, err := cluster.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		nodes = list.Items
	}
	var services []string
	if list, err := cluster.Client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{}); err == nil {
		for _, one := range list.Items {
			services = append(services, one.Spec.CIDRs...)
		}
	}
	if api, err := cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{}); err == nil {
		services = append(services, api.Spec.ClusterIPs...)
	}
	return learnHosts(nodes, services)
}

// learnHosts returns the addresses of nodes that stand for no other cluster, and what Services have: ranges and addresses.
func learnHosts(nodes []corev1.Node, services []string) (found remotecluster.PodRanges) {
	texts := slices.Clone(services)
	for i := range nodes {
		if nodes[i].Labels[keys.Cluster] != "" || nodes[i].Labels["type"] == "virtual-kubelet" {
			continue
		}
		for _, a := range nodes[i].Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				texts = append(texts, a.Address)
			}
		}
	}
	for _, text := range texts {
		if one, err := netip.ParsePrefix(text); err == nil {
			found = append(found, one.Masked())
		} else if address, err := netip.ParseAddr(text); err == nil {
			found = append(found, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	slices.SortFunc(found, netip.Prefix.Compare)
	return slices.Compact(found)
}

// learn returns the pod ranges that nodes and the settings of kubeadm tell. A node that comes later gets
// a range of its own, so kubeadm's counts if it covers those of all nodes.
func learn(nodes []corev1.Node, settings string) remotecluster.PodRanges {
	var found remotecluster.PodRanges
	for i := range nodes {
		texts := nodes[i].Spec.PodCIDRs
		if len(texts) == 0 && nodes[i].Spec.PodCIDR != "" {
			texts = []string{nodes[i].Spec.PodCIDR}
		}
		if ranges, err := remotecluster.ParsePodRanges(texts); err == nil {
			found = append(found, ranges...)
		}
	}
	var kubeadm struct {
		Networking struct {
			PodSubnet string `json:"podSubnet"`
		} `json:"networking"`
	}
	if yaml.Unmarshal([]byte(settings), &kubeadm) == nil && kubeadm.Networking.PodSubnet != "" {
		whole, err := remotecluster.ParsePodRanges(strings.Split(kubeadm.Networking.PodSubnet, ","))
		if err == nil && !slices.ContainsFunc(found, func(one netip.Prefix) bool { return !whole.HasRange(one) }) {
			return whole
		}
	}
	slices.SortFunc(found, netip.Prefix.Compare)
	return slices.Compact(found)
}

// network is how the pods of the two clusters will reach each other.
func (p *Plan) network(o Options) v1alpha1.PodNetwork {
	switch {
	case o.PodNetwork != "":
		return v1alpha1.PodNetwork(o.PodNetwork)
	case p.Remote != nil:
		return p.Remote.Spec.PodNetwork
	}
	return v1alpha1.Isolated
}

// chooseTerms sets what the remote cluster's owner allows of the network fabric: their cluster lets in pods of home's ranges, as the user
// or home itself tells them.
func (p *Plan) chooseTerms(o Options, s Situation) error {
	if len(o.PodTranslations)+len(o.HomePodTranslations) > 0 && p.network(o) != v1alpha1.Fabric {
		return cli.Misuse("--pod-translations and --home-pod-translations are for --pod-network Fabric: give that too, or leave them out")
	}
	if o.PodCarrier != "" && p.network(o) != v1alpha1.Fabric {
		return cli.Misuse("--pod-carrier is for --pod-network Fabric: give that too, or leave it out")
	}
	if len(o.HomePodCIDRs) > 0 && p.network(o) != v1alpha1.Fabric {
		return cli.Misuse("--home-pod-cidrs is for --pod-network Fabric: give that too, or leave it out")
	}
	if p.Home != nil {
		p.Network = p.Home.Spec.Network.DeepCopy()
	}
	if p.network(o) != v1alpha1.Fabric {
		if o.PodNetwork != "" {
			p.Network = nil // they were for the fabric, which is given up
		}
		return nil
	}
	home, err := remotecluster.ParsePodRanges(o.HomePodCIDRs)
	if err != nil {
		return cli.Misuse("--home-pod-cidrs: %w", err)
	}
	if len(home) == 0 && p.Network != nil {
		home, err = p.homeRanges(o)
		if err != nil {
			return err
		}
	}
	if len(home) == 0 {
		home = s.HomeRanges
	}
	if len(home) == 0 {
		return cli.Misuse("home's nodes do not tell from which ranges pods have their addresses, so ask whoever set up its pod network, and " +
			"give them with --home-pod-cidrs")
	}
	if err := p.chooseTranslations(o, s, home); err != nil {
		return err
	}
	if p.Network == nil {
		p.Network = &remotev1alpha1.NetworkPolicy{}
	}
	p.Network.PodCIDRs = nil
	for _, one := range p.HomeTranslations.Ranges(home) {
		p.Network.PodCIDRs = append(p.Network.PodCIDRs, one.String())
	}
	return nil
}

// chooseRanges sets the pod ranges of the plan. Only the user gives a cluster its ranges: what it says
// itself is shown, and taken over when the user repeats it.
func (p *Plan) chooseRanges(o Options, s Situation) error {
	var have []string
	joined := p.network(o).Joined()
	if p.Remote != nil {
		have = p.Remote.Spec.PodCIDRs
	}
	wanted, err := remotecluster.ParsePodRanges(o.PodCIDRs)
	switch {
	case err != nil:
		return cli.Misuse("--pod-cidrs: %w", err)
	case len(wanted) > 0 && !joined:
		return cli.Misuse("--pod-cidrs is for clusters whose pods reach each other: give --pod-network Routed or Fabric too, or leave it out")
	case !joined || len(wanted) == 0 && len(have) > 0:
		return nil
	case len(wanted) == 0 && o.PodNetwork == "":
		// The peering is from before ranges were asked for.
		p.Notes = append(p.Notes, fmt.Sprintf("new pods in the cluster of context %q get no address at home, because %s has no pod ranges: %s",
			s.RemoteContext, describe(p.Name), confirm(s)))
		return nil
	case len(wanted) == 0:
		return cli.Misuse("say which addresses pods in the cluster of context %q have, since Services at home will send there: %s",
			s.RemoteContext, confirm(s))
	}
	if p.network(o) == v1alpha1.Fabric {
		p.unnamed(s, wanted)
		return nil // chooseTranslations says of ranges that overlap as which others they are reached
	}
	if own, other, overlap := wanted.Overlap(s.HomeRanges); overlap {
		return cli.Refuse("--pod-cidrs %s overlaps with %s, from which pods at home have their addresses, so neither could be told from the "+
			"other: leave out --pod-network, give --pod-network Fabric, which translates, or give one of the clusters another range", own, other)
	}
	if own, other, overlap := wanted.Overlap(s.HomeHosts); overlap {
		return cli.Refuse("--pod-cidrs %s overlaps with %s, which nodes or Services at home have, so pods there could not be told from these: "+
			"give ranges that are the cluster's own", own, other)
	}
	for i := range s.Remotes {
		other := &s.Remotes[i]
		if other.Name == p.Name {
			continue
		}
		theirs := reachedOf(other)
		if own, theirOwn, overlap := wanted.Overlap(theirs); overlap {
			return cli.Refuse("--pod-cidrs %s overlaps with %s of %s, so pods of one could take the addresses of the other: give ranges that are "+
				"the cluster's own", own, theirOwn, describe(other.Name))
		}
	}
	p.unnamed(s, wanted)
	return nil
}

// unnamed notes which ranges the cluster says that it has and the user does not name.
func (p *Plan) unnamed(s Situation, wanted remotecluster.PodRanges) {
	for _, learned := range s.RemoteRanges {
		if !wanted.HasRange(learned) {
			p.Notes = append(p.Notes, fmt.Sprintf("the cluster of context %q says that pods there have addresses from %s, which is in none of "+
				"--pod-cidrs: they get no address at home", s.RemoteContext, learned))
		}
	}
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
