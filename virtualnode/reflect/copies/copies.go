// Package copies makes the copies of home objects that pods in a remote cluster
// need, and brings a copy that exists in step. It is pure.
package copies

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Place is where copies go: a namespace of a remote cluster.
type Place struct {
	// HomeID is the ID of the home cluster, which marks what is ours.
	HomeID string
	// Namespace is the namespace of the remote cluster.
	Namespace string
}

// Change is what it takes to bring a copy in step.
type Change int

const (
	// None says that it is in step.
	None Change = iota
	// Update says that it is to be written.
	Update
	// Replace says that it is to be deleted and made again, for it cannot become
	// what is wanted.
	Replace
)

// Ours reports whether an object of a remote cluster is a copy made by the home
// cluster with the given ID.
func Ours(object metav1.Object, homeID string) bool {
	labels := object.GetLabels()
	return labels[keys.HomeID] == homeID && labels[keys.Reflected] != ""
}

// IsCopy reports whether an object of home is itself a copy, made here by
// another home cluster. Copies do not travel on.
func IsCopy(object metav1.Object) bool { return object.GetLabels()[keys.Reflected] != "" }

// meta returns the metadata of a copy. Labels and annotations of the home object
// stay at home: pods do not see them, and controllers of the remote cluster might
// act on them.
func (p Place) meta(name string, home types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: p.Namespace, Name: name,
		Labels: map[string]string{keys.HomeID: p.HomeID, keys.Reflected: string(home)},
	}
}

// ConfigMap returns the copy of a ConfigMap.
func (p Place) ConfigMap(home *corev1.ConfigMap) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: p.meta(home.Name, home.UID), Data: home.Data, BinaryData: home.BinaryData, Immutable: home.Immutable}
}

// MergeConfigMap returns what a copy that exists should become, and how.
func MergeConfigMap(have, want *corev1.ConfigMap) (*corev1.ConfigMap, Change) {
	next := have.DeepCopy()
	adopt(next, want)
	next.Data, next.BinaryData, next.Immutable = want.Data, want.BinaryData, want.Immutable
	if equality.Semantic.DeepEqual(have, next) {
		return next, None
	}
	same := equality.Semantic.DeepEqual(have.Data, want.Data) && equality.Semantic.DeepEqual(have.BinaryData, want.BinaryData)
	if have.Immutable != nil && *have.Immutable && (!same || want.Immutable == nil || !*want.Immutable) {
		return next, Replace
	}
	return next, Update
}

// adopt puts the labels of a copy on an object, which may have others too.
func adopt(next, want metav1.Object) {
	labels := maps.Clone(next.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	// What marks a copy, or decides what it does, is ours alone.
	for key := range labels {
		if strings.HasPrefix(key, "lodestone.dev/") {
			delete(labels, key)
		}
	}
	maps.Copy(labels, want.GetLabels())
	next.SetLabels(labels)
}
