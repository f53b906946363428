package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
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
}

// Finding is one thing that the upgrade changes.
type Finding struct {
	// About is the object, such as "HomeCluster fleet" or "claim shop/data".
	About string
	// Change says what is different after the upgrade, Do what to do about it: half a sentence each.
	Change, Do string
}

// String returns the finding in one line.
func (f Finding) String() string { return fmt.Sprintf("%s: %s; %s", f.About, f.Change, f.Do) }

// checks are the functions that make findings, one for each default or right that the version
// changes.
var checks = []func(Installation) []Finding{
	namesNotListed,
	classesNotAllowed,
	claimsNotMarked,
	classesThatPacked,
}

// Findings returns all that the upgrade changes for an installation, sorted. It is pure.
func Findings(i Installation) []Finding {
	var all []Finding
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
