// Package virtualclass reads virtual storage classes. Parse returns a Class, which says in which
// clusters volumes may be (Allows), which real class a claim gets there (RealClassName), and which
// labels and annotations are copied to the backing claim (Carries). Offer and Resolve are about the
// real classes of one cluster. It is pure.
package virtualclass

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Class is what a virtual storage class asks for.
type Class struct {
	Name          string
	ReclaimPolicy corev1.PersistentVolumeReclaimPolicy
	MountOptions  []string

	localClass    string
	remoteClass   string
	remoteClasses map[string]string
	clusters      []string
	classes       []string
	siblings      string
	carry         []string
	replicateTo   []string
	replicateRPO  time.Duration
}

// Is says whether class is a virtual storage class.
func Is(class *storagev1.StorageClass) bool {
	return class != nil && class.Provisioner == keys.Driver
}

// Parse reads a virtual storage class. An error is one sentence that says what to correct in the
// class.
func Parse(class *storagev1.StorageClass) (Class, error) {
	if class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return Class{}, fmt.Errorf("storage class %q has volumeBindingMode Immediate, but a virtual class follows the pod: create it anew with "+
			"volumeBindingMode: WaitForFirstConsumer", class.Name)
	}
	parsed := Class{
		Name:          class.Name,
		ReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		MountOptions:  class.MountOptions,
		remoteClasses: map[string]string{},
	}
	if class.ReclaimPolicy != nil {
		parsed.ReclaimPolicy = *class.ReclaimPolicy
	}
	for _, key := range slices.Sorted(maps.Keys(class.Parameters)) {
		value := class.Parameters[key]
		switch {
		case key == keys.LocalClass:
			parsed.localClass = value
		case key == keys.RemoteClass:
			parsed.remoteClass = value
		case key == keys.Clusters:
			parsed.clusters = list(value)
		case key == keys.Classes:
			parsed.classes = list(value)
		case key == keys.Siblings:
			if !slices.Contains(siblingRules, value) {
				return Class{}, fmt.Errorf("storage class %q has the value %q in parameter %s: create it anew with one of %s", class.Name, value,
					keys.Siblings, strings.Join(siblingRules, ", "))
			}
			parsed.siblings = value
		case key == keys.ReplicateTo:
			parsed.replicateTo = list(value)
		case key == keys.ReplicateRPO:
			rpo, err := parseRPO(value)
			if err != nil {
				return Class{}, fmt.Errorf("storage class %q has the value %q in parameter %s: create it anew with %w", class.Name, value, key, err)
			}
			parsed.replicateRPO = rpo
		case key == keys.Carry:
			patterns, err := parseCarry(class.Name, value)
			if err != nil {
				return Class{}, err
			}
			parsed.carry = patterns
		case strings.HasPrefix(key, keys.RemoteClass+".") && len(key) > len(keys.RemoteClass)+1:
			parsed.remoteClasses[strings.TrimPrefix(key, keys.RemoteClass+".")] = value
		default:
			return Class{}, fmt.Errorf("storage class %q has the unknown parameter %q: known are %s, %s, %s.<cluster>, %s, %s, %s, %s, %s and %s",
				class.Name, key, keys.LocalClass, keys.RemoteClass, keys.RemoteClass, keys.Clusters, keys.Classes, keys.Siblings, keys.Carry,
				keys.ReplicateTo, keys.ReplicateRPO)
		}
	}
	if parsed.clusters != nil && len(parsed.clusters) == 0 {
		return Class{}, fmt.Errorf("storage class %q lists no cluster in parameter %s: list some, or create the class anew without "+
			"it to allow all", class.Name, keys.Clusters)
	}
	return parsed, nil
}

// parseRPO reads the RPO of a replica. An error says what would be right.
func parseRPO(value string) (time.Duration, error) {
	rpo, err := time.ParseDuration(value)
	if err != nil || rpo < 10*time.Second {
		return 0, errors.New("a time of at least 10s, such as 15m")
	}
	return rpo, nil
}

// Replication returns the clusters in the first of which that has not the data of a claim with these annotations its second copy is kept,
// and how old that may be; 0: the default. No clusters: it gets none. An error says what to correct in the annotations.
func (c Class) Replication(claimAnnotations map[string]string) (to []string, rpo time.Duration, err error) {
	to, rpo = c.replicateTo, c.replicateRPO
	if value, ok := claimAnnotations[keys.ReplicateTo]; ok {
		to = list(value)
	}
	if value, ok := claimAnnotations[keys.ReplicateRPO]; ok {
		if rpo, err = parseRPO(value); err != nil {
			return nil, 0, fmt.Errorf("the claim has the value %q in annotation %s: give %w", value, keys.ReplicateRPO, err)
		}
	}
	return to, rpo, nil
}

var siblingRules = []string{keys.SiblingsPack, keys.SiblingsSpread, keys.SiblingsIgnore}

func list(value string) []string {
	items := []string{}
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Allows reports whether volumes of the class may be in a cluster.
func (c Class) Allows(cluster string) bool {
	return c.clusters == nil || slices.Contains(c.clusters, cluster)
}

// RealClassName returns the name of the real class that a claim with these
// annotations gets in a cluster; empty means that cluster's own choice. An error
// says that the claim asks for a class that the virtual class does not list.
func (c Class) RealClassName(cluster string, claimAnnotations map[string]string) (string, error) {
	if wanted, ok := claimAnnotations[keys.Class]; ok {
		if !slices.Contains(c.classes, wanted) {
			return "", fmt.Errorf("the claim asks for real class %q (annotation %s), which parameter %s of storage class %q does not list: choose "+
				"a listed class or ask the administrator to add it", wanted, keys.Class, keys.Classes, c.Name)
		}
		return wanted, nil
	}
	if cluster == keys.Home {
		return c.localClass, nil
	}
	if name, ok := c.remoteClasses[cluster]; ok {
		return name, nil
	}
	return c.remoteClass, nil
}

// Choices returns the names of the real classes that a claim may ask for.
func (c Class) Choices() []string { return slices.Clone(c.classes) }

// Siblings returns what the other volumes of a StatefulSet mean for a new one: keys.SiblingsIgnore
// unless the class names another rule. Replicas with a volume each are mostly a database, which keeps
// several copies so that the loss of a node or a cluster does not take them all; kube-scheduler spreads
// them by itself, and packing them would undo that.
func (c Class) Siblings() string {
	return cmp.Or(c.siblings, keys.SiblingsIgnore)
}

const noProvisioner = "kubernetes.io/no-provisioner"

// Offer returns the real classes among a cluster's storage classes, by name.
// Virtual classes are left out, so that no volume is ever backed by another
// virtual one. At most one is marked as default: as in Kubernetes the newest of
// those that are annotated so, the first by name among equals.
func Offer(classes []*storagev1.StorageClass) []v1alpha1.OfferedClass {
	var offered []v1alpha1.OfferedClass
	var chosen *storagev1.StorageClass
	for _, class := range classes {
		if Is(class) {
			continue
		}
		if isDefault(class) && (chosen == nil || precedes(class, chosen)) {
			chosen = class
		}
		mode := storagev1.VolumeBindingImmediate
		if class.VolumeBindingMode != nil {
			mode = *class.VolumeBindingMode
		}
		offered = append(offered, v1alpha1.OfferedClass{
			Name:                 class.Name,
			Provisioner:          class.Provisioner,
			BindingMode:          mode,
			AllowVolumeExpansion: class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion,
			Static:               class.Provisioner == noProvisioner,
			Templated:            templated(class),
		})
	}
	slices.SortFunc(offered, func(a, b v1alpha1.OfferedClass) int { return strings.Compare(a.Name, b.Name) })
	for i := range offered {
		offered[i].Default = chosen != nil && offered[i].Name == chosen.Name
	}
	return offered
}

// Unclaimed reports whether a volume exists that a claim of its class could get: no claim has it, and
// it is kept for none.
func Unclaimed(volume *corev1.PersistentVolume) bool {
	return volume.Spec.ClaimRef == nil && volume.DeletionTimestamp == nil
}

// ForHomes returns the names of the classes of a cluster, sorted, of which claims of home clusters may
// be where its owner lists none: the real classes whose provisioner makes a volume for each claim. Not
// those that have an unclaimed volume, which is somebody's and which any claim of the class could get;
// unclaimed has their names.
func ForHomes(classes []*storagev1.StorageClass, unclaimed map[string]bool) []string {
	var names []string
	for _, class := range Offer(classes) {
		if !class.Static && !unclaimed[class.Name] {
			names = append(names, class.Name)
		}
	}
	return names
}

// isDefault reads the annotation in both spellings that Kubernetes knows.
func isDefault(class *storagev1.StorageClass) bool {
	return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
		class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

func precedes(a, b *storagev1.StorageClass) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

func templated(class *storagev1.StorageClass) bool {
	for _, value := range class.Parameters {
		if strings.Contains(value, "${pvc.") {
			return true
		}
	}
	return false
}

// Resolve picks the real class of the given name from those that a cluster
// offers, or its default class when name is empty. where names the cluster in
// the error, which is one sentence.
func Resolve(name, where string, offered []v1alpha1.OfferedClass) (v1alpha1.OfferedClass, error) {
	for _, class := range offered {
		if (name == "" && class.Default) || (name != "" && class.Name == name) {
			return class, nil
		}
	}
	if name == "" {
		return v1alpha1.OfferedClass{}, fmt.Errorf("%s has no default storage class of its own: mark one as default there, or name one in the "+
			"virtual class or the RemoteCluster", where)
	}
	return v1alpha1.OfferedClass{}, fmt.Errorf("%s has no real storage class %q: create it there (a virtual class does not count), or name "+
		"another in the virtual class", where, name)
}

// Topologies returns the allowedTopologies of the classes that have some, by class name.
// kube-scheduler applies those of a virtual class; it does not know the real class behind it.
func Topologies(classes []*storagev1.StorageClass) map[string][]corev1.TopologySelectorTerm {
	confined := map[string][]corev1.TopologySelectorTerm{}
	for _, class := range classes {
		if len(class.AllowedTopologies) > 0 {
			confined[class.Name] = class.AllowedTopologies
		}
	}
	return confined
}

// Within reports whether a node with some labels is in one of the terms, by the rules of
// kube-scheduler: no terms select every node, a term without expressions none.
func Within(terms []corev1.TopologySelectorTerm, labels map[string]string) bool {
	return len(terms) == 0 || slices.ContainsFunc(terms, func(term corev1.TopologySelectorTerm) bool {
		return len(term.MatchLabelExpressions) > 0 &&
			!slices.ContainsFunc(term.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
				value, ok := labels[e.Key]
				return !ok || !slices.Contains(e.Values, value)
			})
	})
}

// reserved are the domains of keys that Kubernetes and Lodestone act upon: users must not write
// them on a backing claim. Their subdomains are reserved too, except recommended ones, which
// nothing acts upon.
var reserved = []string{keys.Driver, "kubernetes.io", "k8s.io"}

const recommended = "app.kubernetes.io"

// Carriable reports whether a class may name a label or annotation key to be copied from a virtual
// claim to its backing claim.
func Carriable(key string) bool {
	domain, _, found := strings.Cut(strings.ToLower(key), "/")
	if !found || domain == recommended {
		return true
	}
	return !slices.ContainsFunc(reserved, func(r string) bool { return domain == r || strings.HasSuffix(domain, "."+r) })
}

// Carries reports whether labels and annotations of this key are copied from a virtual claim of the
// class to its backing claim.
func (c Class) Carries(key string) bool {
	return Carriable(key) && slices.ContainsFunc(c.carry, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return key == pattern || (open && strings.HasPrefix(key, prefix))
	})
}

// CarriesAny reports whether the class names any labels or annotations to copy.
func (c Class) CarriesAny() bool { return len(c.carry) > 0 }

// parseCarry reads a list of keys, each exact or with an asterisk at its end.
func parseCarry(class, value string) ([]string, error) {
	patterns := list(value)
	for _, pattern := range patterns {
		prefix := strings.TrimSuffix(pattern, "*")
		switch {
		case strings.ContainsAny(prefix, "* \t\n"):
			return nil, fmt.Errorf("storage class %q has the pattern %q in parameter %s: create it anew with keys, separated by commas, that have "+
				"an asterisk at most at their end", class, pattern, keys.Carry)
		case !Carriable(prefix):
			return nil, fmt.Errorf("storage class %q has the pattern %q in parameter %s: create it anew without it, for keys of that domain are "+
				"never carried", class, pattern, keys.Carry)
		}
	}
	return patterns, nil
}
