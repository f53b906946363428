package soak

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Classes of the claims beside fabric.Class: the real class west-now, which binds
// at once, and one whose volumes stay when their claims are deleted.
const (
	nowClass  = "soak-now"
	keptClass = "soak-kept"
)

// homeNode takes the claims that are sent home without a pod.
const homeNode = "home-1"

// wish is what is asked for one claim.
type wish struct {
	namespace, name, class string
	// node is where the claim is sent as kube-scheduler would, without a pod; empty:
	// a pod that uses it is made.
	node string
	// place is where the pod must run: keys.Home, fabric.WestNode or, where
	// kube-scheduler and the extender choose, empty.
	place string
	// with is the name of another claim of the same pod, of an earlier wish; the pod
	// has the name of that claim.
	with string
	// doomed claims are deleted in the second half.
	doomed bool
}

// plan returns what is asked for, the same for the same seed.
func plan(random *rand.Rand, namespaces []string, claims int) []wish {
	var wishes []wish
	places := []string{keys.Home, fabric.WestNode, ""}
	classes := []string{fabric.Class, fabric.Class, nowClass, keptClass}
	for i := range claims {
		w := wish{
			namespace: namespaces[random.IntN(len(namespaces))],
			name:      fmt.Sprintf("data-%d", i),
			class:     classes[random.IntN(len(classes))],
			place:     places[random.IntN(len(places))],
			doomed:    random.IntN(4) > 0,
		}
		switch kind := random.IntN(8); {
		case kind < 4: // most without a pod: so many would only keep kube-scheduler busy
			w.node = []string{homeNode, fabric.WestNode}[random.IntN(2)]
			w.place = ""
		case kind == 4 && i > 0 && wishes[i-1].node == "" && wishes[i-1].with == "":
			before := wishes[i-1]
			w.with, w.namespace, w.place, w.doomed = before.name, before.namespace, before.place, before.doomed
		}
		wishes = append(wishes, w)
	}
	return wishes
}

func (w wish) key() string { return w.namespace + "/" + w.name }

// claim returns the claim that is wished for.
func (w wish) claim() *corev1.PersistentVolumeClaim {
	claim := fabric.NewClaim(w.namespace, w.name, w.class)
	if w.node != "" {
		claim.Annotations = map[string]string{keys.SelectedNode: w.node}
	}
	return claim
}

// pods returns the pods that use the claims.
func pods(wishes []wish) []*corev1.Pod {
	using := map[string][]string{}
	for _, w := range wishes {
		if w.with != "" {
			using[w.namespace+"/"+w.with] = append(using[w.namespace+"/"+w.with], w.name)
		}
	}
	var all []*corev1.Pod
	for _, w := range wishes {
		if w.node != "" || w.with != "" {
			continue
		}
		pod := fabric.NewPod(w.namespace, w.name, append([]string{w.name}, using[w.key()]...)...)
		switch w.place {
		case keys.Home:
			pod = fabric.AtHome(pod)
		case fabric.WestNode:
			pod = fabric.InWest(pod)
		}
		all = append(all, pod)
	}
	return all
}
