package moves

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// memorable is how many pods a witness remembers of each sort. Of one that it forgot it is
// not known that it ended, and a move that had seen it waits longer.
const memorable = 1000

// witness remembers how pods went that used claims at home: only a watch sees what a pod
// was last. It is safe for concurrent use.
type witness struct {
	mu      sync.Mutex
	ended   []types.UID
	unended []*slim.Pod
}

// gone notes that a pod is gone.
func (w *witness) gone(obj any) {
	if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		// What was seen of it last. One that had ended then did not run again.
		obj = missed.Obj
	}
	pod, ok := obj.(*slim.Pod)
	if !ok || pod.Node == "" || len(pod.Claims) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if pod.Ended() {
		w.ended = latest(append(w.ended, pod.UID))
	} else {
		w.unended = latest(append(w.unended, pod))
	}
}

// latest leaves out what is too old to be remembered.
func latest[T any](all []T) []T {
	return slices.Delete(all, 0, max(0, len(all)-memorable))
}

// saw says whether a pod was seen to end.
func (w *witness) saw(pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.ended, pod)
}

// missed returns the pods that used one of some claims, namespace/name, and were gone
// before anybody saw them end.
func (w *witness) missed(claims []string) []*slim.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []*slim.Pod
	for _, pod := range w.unended {
		if slices.ContainsFunc(pod.Claims, func(name string) bool { return slices.Contains(claims, name) }) {
			found = append(found, pod)
		}
	}
	return found
}

// settle forgets pods that run no longer.
func (w *witness) settle(pods map[types.UID]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unended = slices.DeleteFunc(w.unended, func(pod *slim.Pod) bool { return pods[pod.UID] })
}

// Witness has the controller see how the pods of home go. Whoever does not lead sees it
// too, to know it once it leads.
func (c *Controller) Witness(pods cache.SharedIndexInformer) error {
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: c.witness.gone}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	return nil
}

// local says whether a pod is bound to a node of home: of others the virtual node keeps
// the pod until its end is proven.
func (c *Controller) local(pod *slim.Pod) bool { return pod.Node != "" && c.atHome(pod.Node) }

// writer is what a record remembers of a pod at home.
func writer(pod *slim.Pod) record.Pod {
	return record.Pod{UID: pod.UID, Name: pod.Name, Node: pod.Node, Grace: pod.Grace}
}

// writerIn is writer for a pod of any cluster. A remote one may say anything.
func writerIn(cluster string, pod *slim.Pod) record.Pod {
	known := writer(pod)
	if cluster != keys.Home {
		known.Cluster, known.UID = cluster, known.UID[:min(len(known.UID), 64)]
		known.Name, known.Node = known.Name[:min(len(known.Name), 253)], known.Node[:min(len(known.Node), 253)]
	}
	return known
}

// observeVanished finds out which pods that used the claims are gone, and how.
func (c *Controller) observeVanished(o *decide.Observation, seen abroad) {
	var claims []string
	for i := range o.Record.Claims {
		known := &o.Record.Claims[i]
		claims = append(claims, o.Record.Namespace+"/"+known.Name)
		ref := known.Source.Ref
		if ref.Cluster == keys.Home {
			claims = append(claims, ref.Namespace+"/"+ref.Name)
		} else if l := seen[place{ref.Cluster, ref.Namespace}]; l != nil {
			for _, pod := range l.witness.missed([]string{ref.Namespace + "/" + ref.Name}) {
				if pod.Name != o.Record.MoverName(i, record.Source) {
					o.Unended = append(o.Unended, writerIn(ref.Cluster, pod))
				}
			}
		}
	}
	for _, pod := range c.witness.missed(claims) {
		if c.local(pod) && !strings.HasPrefix(pod.Name, record.SecretName(o.Record.UID)+"-") {
			// Movers of this move are known otherwise.
			o.Unended = append(o.Unended, writer(pod))
		}
	}
	o.Ended = map[types.UID]bool{}
	for _, pod := range o.Record.Pods {
		if pod.Cluster == "" {
			o.Ended[pod.UID] = c.witness.saw(pod.UID)
		} else {
			o.Ended[pod.UID] = seen.saw(pod.UID)
		}
	}
}

// lookOut watches how pods go in the remote clusters of the sources, before it is looked
// at what is there.
func (c *Controller) lookOut(ctx context.Context, w *work, r *record.Record) {
	if !record.Before(r.Phase, v1alpha1.MoveCommit) {
		w.abroad.close()
		return
	}
	for i := range r.Claims {
		ref := r.Claims[i].Source.Ref
		if at, why := c.reach(ref.Cluster); why == "" && !at.home {
			w.abroad.watch(ctx, at, place{ref.Cluster, ref.Namespace})
		}
	}
}
