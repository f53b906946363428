package reflect

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
)

// rewritePeriod is how often Secrets are written again, which cannot be watched.
const rewritePeriod = 10 * time.Minute

// TestPartitionOnlyDelays cuts the way to west for everything but watches that
// are open, which is what a reflector cannot tell from a quiet cluster.
func TestPartitionOnlyDelays(t *testing.T) {
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	var cut atomic.Bool
	var failed atomic.Int32
	w.start(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if cut.Load() {
				failed.Add(1)
				return nil, errors.New("no route to west")
			}
			return next.RoundTrip(request)
		})
	})
	settings := w.configMap("settings", "one")
	password := w.secret("password", "one", nil)
	w.configMap("unneeded", "one")
	w.secret("unneeded", "one", nil)
	w.pod("a", mounts("settings", "password"))
	w.pod("b", mounts("unneeded", "unneeded"))
	w.eventually("all is there", func() bool {
		return w.awayConfigMap("settings") != nil && w.awaySecret("password") != nil && w.awayConfigMap("unneeded") != nil &&
			w.awaySecret("unneeded") != nil
	})

	cut.Store(true)
	settings.Data["key"] = "two"
	must.Update(t, home.Client().CoreV1().ConfigMaps(w.namespace), settings)
	password.Data["key"] = []byte("two")
	must.Update(t, home.Client().CoreV1().Secrets(w.namespace), password)
	w.endPod("b")
	w.service("web", nil)
	w.eventually("it was tried in vain", func() bool { return failed.Load() > 5 })

	cut.Store(false)
	w.eventually("what changed meanwhile is in step, and what is not needed is gone", func() bool {
		configMap, secret := w.awayConfigMap("settings"), w.awaySecret("password")
		return configMap != nil && configMap.Data["key"] == "two" && secret != nil && string(secret.Data["key"]) == "two" &&
			w.awayConfigMap("unneeded") == nil && w.awaySecret("unneeded") == nil && w.awayService("web") != nil
	})
}

func TestTamperedSecretIsWrittenAgainInTime(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	w.secret("password", "one", nil)
	w.pod("a", mounts("", "password"))
	w.eventually("the copy is there", w.hasSecret("password", "one"))
	tampered := w.awaySecret("password")
	tampered.Data["key"] = []byte("tampered")
	must.Update(t, west.Client().CoreV1().Secrets(w.away), tampered)
	w.clock.Step(rewritePeriod)
	w.eventually("it is put right", w.hasSecret("password", "one"))

	must.Delete(t, west.Client().CoreV1().Secrets(w.away), "password")
	w.clock.Step(rewritePeriod)
	w.eventually("it is made again", w.hasSecret("password", "one"))
}

func TestCopiesOfOtherHomesDoNotTravelOn(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	copied := map[string]string{"lodestone.dev/home": "another", "lodestone.dev/reflected": "1234"}
	must.Create(t, home.Client().CoreV1().ConfigMaps(w.namespace),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "copy", Labels: copied}})
	w.secret("copy", "x", func(secret *corev1.Secret) { secret.Labels = copied })
	w.service("copy", func(service *corev1.Service) { service.Labels = copied })
	w.configMap("original", "x")
	w.service("original", nil)
	w.pod("a", func(pod *corev1.Pod) {
		mounts("copy", "copy")(pod)
		mounts("original", "")(pod)
	})
	w.eventually("what is no copy is there", func() bool { return w.awayConfigMap("original") != nil && w.awayService("original") != nil })
	w.consistently("no copy is", func() bool {
		return w.awayConfigMap("copy") == nil && w.awaySecret("copy") == nil && w.awayService("copy") == nil
	})
}

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
	configMaps := must.List(w.t, west.Client().CoreV1().ConfigMaps(w.away), options)
	for _, object := range configMaps.Items {
		names = append(names, "ConfigMap "+object.Name)
	}
	secrets := must.List(w.t, west.Client().CoreV1().Secrets(w.away), options)
	for _, object := range secrets.Items {
		names = append(names, "Secret "+object.Name)
	}
	services := must.List(w.t, west.Client().CoreV1().Services(w.away), options)
	for _, object := range services.Items {
		names = append(names, "Service "+object.Name)
	}
	slices := must.List(w.t, west.Client().DiscoveryV1().EndpointSlices(w.away), options)
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

// killer lets through a number of writes, and then nothing any more, as if the
// program had been killed. The last one reaches the API server if answerLost is
// set, but its answer reaches nobody.
type killer struct {
	answerLost bool
	died       chan struct{}

	mu   sync.Mutex
	left int
}

func newKiller(writes int, answerLost bool) *killer {
	return &killer{answerLost: answerLost, died: make(chan struct{}), left: writes}
}

var errKilled = errors.New("killed")

// wrap puts the killer around what goes to west.
func (k *killer) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		alive, last := k.step(request.Method != http.MethodGet)
		if alive {
			return next.RoundTrip(request)
		}
		if last && k.answerLost {
			if response, err := next.RoundTrip(request); err == nil {
				_ = response.Body.Close()
			}
		}
		if last {
			close(k.died)
		}
		return nil, errKilled
	})
}

func (k *killer) step(write bool) (alive, last bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left < 0 {
		return false, false
	}
	if !write {
		return true, false
	}
	k.left--
	return k.left >= 0, k.left < 0
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
