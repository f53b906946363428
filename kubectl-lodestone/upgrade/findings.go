package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/daemonsets"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/confinement"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Installation is what is in a cluster before the upgrade. The cluster may be a home cluster, a
// remote cluster, or both. Lists that the user may not read are empty.
type Installation struct {
	Remotes    []*v1alpha1.RemoteCluster
	Homes      []*remotev1alpha1.HomeCluster
	Namespaces []*corev1.Namespace
	Nodes      []*corev1.Node
	Pods       []*corev1.Pod
	Claims     []*corev1.PersistentVolumeClaim
	Volumes    []*corev1.PersistentVolume
	Classes    []*storagev1.StorageClass
	DaemonSets []*appsv1.DaemonSet
	Requests   []*remotev1alpha1.NamespaceRequest
	// Confinement is the policy that confines home clusters, and Built that of this version.
	Confinement, Built confinement.Confinement
	// Unread are the resources that the user may not list: nothing is concluded from their absence.
	Unread []string
}

// Finding is one thing that the upgrade changes.
type Finding struct {
	// About is the object, such as "HomeCluster fleet" or "claim shop/data".
	About string `json:"about"`
	// Change says what is different after the upgrade, Do what to do about it: half a sentence each.
	Change string `json:"change"`
	Do     string `json:"do"`
}

// String returns the finding in one line.
func (f Finding) String() string { return fmt.Sprintf("%s: %s; %s", f.About, f.Change, f.Do) }

// checks are the functions that make findings, one for each default or right that the version
// changes.
var checks = []func(Installation) []Finding{
	namesNotListed,
	classesNotAllowed,
	notConfined,
	daemonSetsWaiting,
	rangesMissing,
	namespacesOfNobody,
	claimsNotMarked,
	classesThatPacked,
	zonesMissing,
}

// Findings returns all that the upgrade changes for an installation, sorted. It is pure.
func Findings(i Installation) []Finding {
	all := []Finding{}
	for _, check := range checks {
		all = append(all, check(i)...)
	}
	slices.SortFunc(all, func(a, b Finding) int { return cmp.Or(cmp.Compare(a.About, b.About), cmp.Compare(a.Change, b.Change)) })
	return all
}

// namesNotListed finds home clusters that may have namespaces of any name only because their
// HomeCluster lists none.
func namesNotListed(i Installation) []Finding {
	var found []Finding
	for _, home := range i.Homes {
		suffix, same, suffixed := "-"+home.Name, []string{}, 0
		for _, namespace := range i.Namespaces {
			switch {
			case namespace.Labels[keys.HomeID] != home.Name:
			case strings.HasSuffix(namespace.Name, suffix):
				suffixed++
			default:
				same = append(same, namespace.Name)
			}
		}
		if len(home.Spec.Namespaces.Names) > 0 || (len(same) == 0 && suffixed > 0) {
			continue
		}
		patterns := "shop-*"
		if len(same) > 0 {
			slices.Sort(same)
			patterns = strings.Join(same[:min(3, len(same))], ",")
		}
		found = append(found, Finding{
			About: "HomeCluster " + home.Name,
			Change: fmt.Sprintf("it lists no namespaces and so may have those of any name; after the upgrade it keeps the %d that it has and gets "+
				"new ones only if their names end in %s", len(same)+suffixed, suffix),
			Do: fmt.Sprintf("list in its spec.namespaces.names the others that it may have, such as %s, or '*' for any as until now", patterns),
		})
	}
	return found
}

// classesNotAllowed finds home clusters that have claims of classes of which new ones are refused,
// because such a claim could get a volume that exists.
func classesNotAllowed(i Installation) []Finding {
	unclaimed := map[string]bool{}
	for _, volume := range i.Volumes {
		if virtualclass.Unclaimed(volume) {
			unclaimed[volume.Spec.StorageClassName] = true
		}
	}
	allowed := virtualclass.ForHomes(i.Classes, unclaimed)
	homeOf := map[string]string{}
	for _, namespace := range i.Namespaces {
		if namespace.Labels[keys.ExistingVolumes] != keys.ExistingVolumesAllowed {
			homeOf[namespace.Name] = namespace.Labels[keys.HomeID]
		}
	}
	var found []Finding
	for _, home := range i.Homes {
		if len(home.Spec.StorageClasses) > 0 {
			continue
		}
		refused := map[string]bool{}
		for _, claim := range i.Claims {
			class := ""
			if claim.Spec.StorageClassName != nil {
				class = *claim.Spec.StorageClassName
			}
			if homeOf[claim.Namespace] == home.Name && claim.Labels[keys.HomeID] == home.Name && class != "" && !slices.Contains(allowed, class) {
				refused[class] = true
			}
		}
		for class := range refused {
			found = append(found, Finding{
				About: "HomeCluster " + home.Name,
				Change: fmt.Sprintf("it has claims of storage class %s, which has volumes without a claim or no provisioner; after the upgrade new "+
					"claims of it are refused", class),
				Do: fmt.Sprintf("give those volumes a claimRef, or list %s in its spec.storageClasses with the other classes that it may use", class),
			})
		}
	}
	return found
}

// notConfined finds that the policy which confines home clusters, without which the agent gives them no
// new rights, is missing or is not that of the version.
func notConfined(i Installation) []Finding {
	if len(i.Homes) == 0 || slices.Contains(i.Unread, policies) {
		return nil
	}
	why := i.Built.Differs(i.Confinement, "the plugin")
	if why == "" {
		return nil
	}
	return []Finding{{
		About:  "policy " + confinement.Name,
		Change: why + "; after the upgrade of the agent home clusters get no rights in new namespaces until it is that of the agent's version",
		Do:     "apply all of deploy/remote of the new version, the agent first",
	}}
}

// policies are what confines home clusters, as resources.
const policies = "validatingadmissionpolicies, validatingadmissionpolicybindings"

// daemonSetsWaiting finds DaemonSets whose pods would wait on virtual nodes for ever: those that were
// there before these are kept off stay as they are.
func daemonSetsWaiting(i Installation) []Finding {
	names := daemonsets.Wanting(values(i.DaemonSets), values(i.Nodes))
	if len(names) == 0 {
		return nil
	}
	return []Finding{{
		About:  "DaemonSets " + strings.Join(names, ", "),
		Change: "they want a pod on virtual nodes, which waits there for ever, and the upgrade leaves them as they are",
		Do:     "run kubectl lodestone daemonsets once, at a time that suits: it keeps them off, and says first what restarts",
	}}
}

func values[T any](pointers []*T) (all []T) {
	for _, p := range pointers {
		all = append(all, *p)
	}
	return all
}

// rangesMissing finds remote clusters whose pods get no addresses at home after the upgrade, because
// nobody said from which ranges they may be.
func rangesMissing(i Installation) (found []Finding) {
	for _, remote := range i.Remotes {
		if remote.Spec.PodNetwork == v1alpha1.Routed && len(remote.Spec.PodCIDRs) == 0 {
			found = append(found, Finding{
				About: "RemoteCluster " + remote.Name,
				Change: "its podNetwork is Routed and it has no podCIDRs; after the upgrade its new pods get no address at home, and those that " +
					"move volumes are not dialled",
				Do: fmt.Sprintf("apply deploy/base/crds of the new version, then set them with kubectl lodestone peer --remote-context %s "+
					"--pod-cidrs, which says without --pod-cidrs which they are", remote.Name),
			})
		}
	}
	return found
}

// namespacesOfNobody finds namespaces of home clusters of which it is not recorded for which home
// namespace they are, or that are for another one than asks for them now.
func namespacesOfNobody(i Installation) (found []Finding) {
	asking := map[string]types.UID{} // the UID of the home namespace that asks for a namespace, by home and its name
	for _, request := range i.Requests {
		asking[request.Namespace+"/"+request.Name] = request.Spec.HomeNamespaceUID
	}
	for _, namespace := range i.Namespaces {
		home, made := namespace.Labels[keys.HomeID], namespace.Annotations[keys.MadeFor]
		if home == "" || made == "" {
			continue
		}
		recorded, now := namespace.Annotations[keys.HomeNamespaceUID], string(asking[keys.TenantPrefix+home+"/"+namespace.Name])
		switch {
		case recorded == "":
			found = append(found, Finding{
				About: "Namespace " + namespace.Name,
				Change: fmt.Sprintf("it was made for home namespace %s without a record of its UID; after the upgrade of home and agent that is "+
					"recorded which has the name then", made),
				Do: "see before that it is still the one whose data is in there, or delete what is left of another",
			})
		case now != "" && now != recorded:
			found = append(found, Finding{
				About: "Namespace " + namespace.Name,
				Change: fmt.Sprintf("it was made for home namespace %s with UID %s, and the one that has the name now has UID %s; after the upgrade "+
					"nothing new is made in it", made, recorded, now),
				Do: "if the home namespace was restored from a backup run kubectl lodestone rebind namespace " + namespace.Name +
					", else delete at home what is left",
			})
		}
	}
	return found
}

// classesThatPacked finds virtual classes with claims that leave to Lodestone what siblings mean: that
// was to pack them.
func classesThatPacked(i Installation) (found []Finding) {
	used := map[string]bool{}
	for _, claim := range i.Claims {
		if claim.Spec.StorageClassName != nil {
			used[*claim.Spec.StorageClassName] = true
		}
	}
	for _, class := range i.Classes {
		if _, says := class.Parameters[keys.Siblings]; says || !virtualclass.Is(class) || !used[class.Name] {
			continue
		}
		found = append(found, Finding{
			About: "StorageClass " + class.Name,
			Change: fmt.Sprintf("it has no parameter %s, so new volumes of a StatefulSet went to the cluster that has most of its others; "+
				"after the upgrade kube-scheduler's own spreading decides", keys.Siblings),
			Do: fmt.Sprintf("create the class anew with %s: %s if they are to stay together", keys.Siblings, keys.SiblingsPack),
		})
	}
	return found
}

// zonesMissing finds virtual nodes that get a zone, where pods are placed by zones.
func zonesMissing(i Installation) (found []Finding) {
	if !slices.ContainsFunc(i.Pods, placedByZone) {
		return nil
	}
	for _, node := range i.Nodes {
		cluster := node.Labels[keys.Cluster]
		if cluster == "" || node.Labels[corev1.LabelTopologyZone] != "" ||
			!slices.ContainsFunc(i.Remotes, func(r *v1alpha1.RemoteCluster) bool { return r.Name == cluster && r.Spec.Topology.Zone == "" }) {
			continue
		}
		found = append(found, Finding{
			About: "Node " + node.Name,
			Change: fmt.Sprintf("it has no zone; after the upgrade it has that of the nodes of %s, or %s where these are in several, and counts "+
				"for pods that are spread over zones or kept apart by them", cluster, cluster),
			Do: fmt.Sprintf("set spec.topology.zone of RemoteCluster %s if it is to be another", cluster),
		})
	}
	return found
}

// placedByZone says whether zones count for where a pod may be.
func placedByZone(pod *corev1.Pod) bool {
	byZone := func(key string) bool { return key == corev1.LabelTopologyZone }
	if slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool { return byZone(c.TopologyKey) }) {
		return true
	}
	affinity := pod.Spec.Affinity
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, term := range preferred {
			terms = append(terms, term.PodAffinityTerm)
		}
	}
	if a := affinity.PodAffinity; a != nil {
		add(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		add(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(term corev1.PodAffinityTerm) bool { return byZone(term.TopologyKey) })
}
