package reflect

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
)

// everything makes a pod that needs one of each kind.
func (w *world) everything(name string) *corev1.Pod {
	return w.pod(name, func(pod *corev1.Pod) {
		mounts("settings", "password")(pod)
		pod.Annotations = map[string]string{keys.Token: "vault"}
	})
}

// complete reports whether all is in west that the pod needs.
func (w *world) complete(pod *corev1.Pod) bool {
	return w.awayConfigMap("settings") != nil && w.awaySecret("password") != nil && w.awaySecret(needs.Token(pod.UID)) != nil &&
		w.awayService("web") != nil && len(w.awayAddresses("web")) == 1
}

// leftovers names what is in west that we made.
func (w *world) leftovers() []string {
	w.t.Helper()
	options := metav1.ListOptions{LabelSelector: keys.HomeID}
	var names []string
	configMaps, err := west.Client().CoreV1().ConfigMaps(w.away).List(w.t.Context(), options)
	require.NoError(w.t, err)
	for _, object := range configMaps.Items {
		names = append(names, "ConfigMap "+object.Name)
	}
	secrets, err := west.Client().CoreV1().Secrets(w.away).List(w.t.Context(), options)
	require.NoError(w.t, err)
	for _, object := range secrets.Items {
		names = append(names, "Secret "+object.Name)
	}
	services, err := west.Client().CoreV1().Services(w.away).List(w.t.Context(), options)
	require.NoError(w.t, err)
	for _, object := range services.Items {
		names = append(names, "Service "+object.Name)
	}
	slices, err := west.Client().DiscoveryV1().EndpointSlices(w.away).List(w.t.Context(), options)
	require.NoError(w.t, err)
	for _, object := range slices.Items {
		names = append(names, "EndpointSlice "+object.Name)
	}
	return names
}

func (w *world) nothingLeft() {
	w.t.Helper()
	await.Until(w.t, "nothing is left", func() bool {
		w.clock.Step(time.Second) // Services stay for a while
		return len(w.leftovers()) == 0
	}, func() any { return w.leftovers() })
}

// TestKilledAtEachWrite kills the program at each of its writes in turn, while it
// makes copies and while it removes them, and checks that the next one leaves
// nothing out and nothing behind.
func TestKilledAtEachWrite(t *testing.T) {
	for _, answerLost := range []bool{false, true} {
		t.Run(fmt.Sprintf("answer lost %t", answerLost), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, v1alpha1.Routed)
			w.open()
			w.configMap("settings", "one")
			w.secret("password", "one", nil)
			w.service("web", nil)
			w.endpoints("web", discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})
			making, removing := true, true
			n := 0
			for ; making || removing; n++ {
				require.Less(t, n, 40, "it must come to an end")
				making = w.killedWhileMaking(n, answerLost)
				removing = w.killedWhileRemoving(n, answerLost)
			}
			// Five copies, and the ledger before each Secret.
			assert.Greater(t, n, 7, "it must have been killed at each of them")
		})
	}
}

// killedWhileMaking reports whether there was an n-th write to be killed at.
func (w *world) killedWhileMaking(n int, answerLost bool) bool {
	w.t.Helper()
	for _, gone := range []bool{false, true} {
		name := fmt.Sprintf("making-%d-%t", n, gone)
		pod := w.everything(name)
		killer := newKiller(n, answerLost)
		stop := w.start(killer.wrap)
		killed := false
		w.eventually("it is killed or done", func() bool {
			select {
			case <-killer.died:
				killed = true
			default:
			}
			return killed || w.complete(pod)
		})
		stop()
		if gone {
			w.endPod(name)
		}
		stop = w.start(nil)
		if !gone {
			w.eventually("all is there after a restart", func() bool { return w.complete(pod) })
			w.endPod(name)
			w.eventually("the pod's own are gone", func() bool { return w.awaySecret(needs.Token(pod.UID)) == nil })
		}
		w.nothingLeft()
		stop()
		if !killed {
			return false
		}
	}
	return true
}

// killedWhileRemoving reports whether there was an n-th write to be killed at.
func (w *world) killedWhileRemoving(n int, answerLost bool) bool {
	w.t.Helper()
	name := fmt.Sprintf("removing-%d", n)
	pod := w.everything(name)
	stop := w.start(nil)
	w.eventually("all is there", func() bool { return w.complete(pod) })
	stop()
	w.endPod(name)
	killer := newKiller(n, answerLost)
	stop = w.start(killer.wrap)
	killed := false
	w.eventually("it is killed or done", func() bool {
		w.clock.Step(time.Second)
		select {
		case <-killer.died:
			killed = true
		default:
		}
		return killed || len(w.leftovers()) == 0
	})
	stop()
	stop = w.start(nil)
	w.nothingLeft()
	stop()
	return killed
}
