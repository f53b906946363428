// Package virtualclass reads virtual storage classes: their parameters, and
// which real class stands behind them in a cluster. It is pure.
package virtualclass

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

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
}

// Is says whether class is a virtual storage class.
func Is(class *storagev1.StorageClass) bool {
	return class != nil && class.Provisioner == keys.Driver
}

// Parse reads a virtual storage class. An error is one sentence that names what
// to mend in the class.
func Parse(class *storagev1.StorageClass) (Class, error) {
	if class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return Class{}, fmt.Errorf("storage class %q has volumeBindingMode Immediate, but a virtual class follows the pod: create it anew with volumeBindingMode: WaitForFirstConsumer", class.Name)
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
				return Class{}, fmt.Errorf("storage class %q has the value %q in parameter %s: create it anew with one of %s", class.Name, value, keys.Siblings, strings.Join(siblingRules, ", "))
			}
			parsed.siblings = value
		case key == keys.Carry:
			patterns, err := parseCarry(class.Name, value)
			if err != nil {
				return Class{}, err
			}
			parsed.carry = patterns
		case strings.HasPrefix(key, keys.RemoteClass+".") && len(key) > len(keys.RemoteClass)+1:
			parsed.remoteClasses[strings.TrimPrefix(key, keys.RemoteClass+".")] = value
		default:
			return Class{}, fmt.Errorf("storage class %q has the unknown parameter %q: known are %s, %s, %s.<cluster>, %s, %s, %s and %s", class.Name, key,
				keys.LocalClass, keys.RemoteClass, keys.RemoteClass, keys.Clusters, keys.Classes, keys.Siblings, keys.Carry)
		}
	}
	if parsed.clusters != nil && len(parsed.clusters) == 0 {
		return Class{}, fmt.Errorf("storage class %q lists no cluster in parameter %s: list some, or create the class anew without it to allow all", class.Name, keys.Clusters)
	}
	return parsed, nil
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

// Allows says whether volumes of the class may live in a cluster.
func (c Class) Allows(cluster string) bool {
	return c.clusters == nil || slices.Contains(c.clusters, cluster)
}

// RealClassName returns the name of the real class that a claim with these
// annotations gets in a cluster; empty means that cluster's own choice. An error
// says that the claim asks for a class that the virtual class does not list.
func (c Class) RealClassName(cluster string, claimAnnotations map[string]string) (string, error) {
	if wanted, ok := claimAnnotations[keys.Class]; ok {
		if !slices.Contains(c.classes, wanted) {
			return "", fmt.Errorf("the claim asks for real class %q (annotation %s), which parameter %s of storage class %q does not list: choose a listed class or ask the administrator to add it", wanted, keys.Class, keys.Classes, c.Name)
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

// Siblings returns what a new volume of a StatefulSet makes of the places of the
// others: keys.SiblingsPack unless the class says otherwise, for pods of one set
// talk to each other, and pods of different clusters mostly cannot.
func (c Class) Siblings() string {
	return cmp.Or(c.siblings, keys.SiblingsPack)
}
