package reflect

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// rewritePeriod is how often Secrets are written again, which cannot be watched.
const rewritePeriod = 10 * time.Minute

// TestPartitionOnlyDelays cuts the way to west for everything but watches that
// are open, which is what a reflector cannot tell from a quiet cluster.
func TestPartitionOnlyDelays(t *testing.T) {
	t.Parallel()
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
		return w.awayConfigMap("settings") != nil && w.awaySecret("password") != nil && w.awayConfigMap("unneeded") != nil && w.awaySecret("unneeded") != nil
	})

	cut.Store(true)
	settings.Data["key"] = "two"
	_, err := home.Client().CoreV1().ConfigMaps(w.namespace).Update(t.Context(), settings, metav1.UpdateOptions{})
	require.NoError(t, err)
	password.Data["key"] = []byte("two")
	_, err = home.Client().CoreV1().Secrets(w.namespace).Update(t.Context(), password, metav1.UpdateOptions{})
	require.NoError(t, err)
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
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	w.secret("password", "one", nil)
	w.pod("a", mounts("", "password"))
	w.eventually("the copy is there", w.hasSecret("password", "one"))
	tampered := w.awaySecret("password")
	tampered.Data["key"] = []byte("tampered")
	_, err := west.Client().CoreV1().Secrets(w.away).Update(t.Context(), tampered, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.clock.Step(rewritePeriod)
	w.eventually("it is put right", w.hasSecret("password", "one"))

	require.NoError(t, west.Client().CoreV1().Secrets(w.away).Delete(t.Context(), "password", metav1.DeleteOptions{}))
	w.clock.Step(rewritePeriod)
	w.eventually("it is made again", w.hasSecret("password", "one"))
}

func TestCopiesOfOtherHomesDoNotTravelOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	copied := map[string]string{"lodestone.dev/home": "another", "lodestone.dev/reflected": "1234"}
	_, err := home.Client().CoreV1().ConfigMaps(w.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "copy", Labels: copied}}, metav1.CreateOptions{})
	require.NoError(t, err)
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
