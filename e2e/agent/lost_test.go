package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
)

func restart(policy corev1.RestartPolicy) func(*remotev1alpha1.ShadowPod) {
	return func(s *remotev1alpha1.ShadowPod) { s.Spec.Pod.Spec.RestartPolicy = policy }
}

func deletePod(t *testing.T, namespace, name string) {
	t.Helper()
	must.Delete(t, bed.West.Client().CoreV1().Pods(namespace), name)
}

func (x tenant) staysLost(namespace, name string) {
	x.t.Helper()
	x.phase(namespace, name, remotev1alpha1.ShadowPodLost)
	await.Never(x.t, "no pod is made any more", func() bool { return podOf(x.t, namespace, name) != nil })
	must.Delete(x.t, x.remote.ShadowPods(namespace), name)
	x.goes(namespace, name)
}

func TestAPodRemovedWhileHomeIsConnectedIsLost(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	stop := x.beat()
	defer stop()
	x.shadow(namespace, "web", nil)
	x.runs(namespace, "web")
	deletePod(t, namespace, "web")
	x.staysLost(namespace, "web")
}

func TestAPodRemovedWhileHomeIsAwayIsMadeAgain(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.beat()()
	x.shadow(namespace, "web", nil)
	first := x.runs(namespace, "web")
	x.connected(metav1.ConditionFalse)
	deletePod(t, namespace, "web")
	eventually(t, "another pod runs", func() error {
		if pod := x.runs(namespace, "web"); pod.UID == first.UID {
			return fmt.Errorf("still pod %s", first.UID)
		}
		return nil
	})
	shadow := x.phase(namespace, "web", remotev1alpha1.ShadowPodCreated)
	assert.Equal(t, int32(1), shadow.Status.Restarts)
	assert.Equal(t, x.runs(namespace, "web").UID, shadow.Status.PodUID)

	// Home is back: from now on it decides.
	stop := x.beat()
	defer stop()
	deletePod(t, namespace, "web")
	x.staysLost(namespace, "web")
}

func TestAPodThatNeverRestartsIsNotMadeAgain(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "job", restart(corev1.RestartPolicyNever))
	pod := x.runs(namespace, "job")
	eventually(t, "the pod is not held any more", func() error {
		if now := podOf(t, namespace, "job"); len(now.Finalizers) > 0 {
			return fmt.Errorf("finalizers %v", now.Finalizers)
		}
		return nil
	})
	assert.Equal(t, pod.UID, x.phase(namespace, "job", remotev1alpha1.ShadowPodCreated).Status.PodUID)
	deletePod(t, namespace, "job")
	x.staysLost(namespace, "job")
}

func TestAPodThatEndedByItselfIsNotMadeAgain(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "task", restart(corev1.RestartPolicyOnFailure))
	x.runs(namespace, "task")
	_, err := bed.West.Client().CoreV1().Pods(namespace).Patch(t.Context(), "task", types.MergePatchType,
		[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	eventually(t, "the end is written down", func() error {
		if s := x.phase(namespace, "task", remotev1alpha1.ShadowPodCreated); s.Status.Reason != "PodEnded" {
			return fmt.Errorf("status %+v", s.Status)
		}
		return nil
	})
	deletePod(t, namespace, "task")
	x.staysLost(namespace, "task")
}

// TestAShadowPodWaitsForAPodOfADeadNode: a pod whose kubelet is silent may still
// run, so nothing says that it is gone.
func TestAShadowPodWaitsForAPodOfADeadNode(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "web", nil)
	pod := x.runs(namespace, "web")
	require.NoError(t, bed.WestNodes.SetAlive(pod.Spec.NodeName, false))
	revive := func() { require.NoError(t, bed.WestNodes.SetAlive(pod.Spec.NodeName, true)) }
	t.Cleanup(revive)
	// With no patience at all, as after kubectl delete --force at home.
	must.Patch(t, x.remote.ShadowPods(namespace), "web", types.MergePatchType, []byte(`{"spec":{"gracePeriodSeconds":0}}`))
	must.Delete(t, x.remote.ShadowPods(namespace), "web")
	eventually(t, "the pod is asked to end", func() error {
		if now := podOf(t, namespace, "web"); now == nil || now.DeletionTimestamp == nil {
			return fmt.Errorf("pod %+v", now)
		}
		return nil
	})
	await.Never(t, "the ShadowPod goes before its pod", func() bool {
		shadow := must.Get(t, bed.Agents.ShadowPods(namespace), "web")
		return podOf(t, namespace, "web") == nil || !assert.Contains(t, shadow.Finalizers, keys.ShadowPodFinalizer)
	})
	revive()
	x.goes(namespace, "web")
}

func TestAShorterGracePeriodIsCarriedToAPodThatIsEnding(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "slow", func(s *remotev1alpha1.ShadowPod) {
		grace := int64(3600)
		s.Spec.Pod.Spec.TerminationGracePeriodSeconds = &grace
	})
	pod := x.runs(namespace, "slow")
	require.NoError(t, bed.WestNodes.SetAlive(pod.Spec.NodeName, false))
	revive := func() { require.NoError(t, bed.WestNodes.SetAlive(pod.Spec.NodeName, true)) }
	t.Cleanup(revive)
	must.Delete(t, x.remote.ShadowPods(namespace), "slow")
	grace := func(want int64) {
		eventually(t, fmt.Sprintf("the pod has %d s left", want), func() error {
			now := podOf(t, namespace, "slow")
			if now == nil || now.DeletionGracePeriodSeconds == nil || *now.DeletionGracePeriodSeconds != want {
				return fmt.Errorf("pod %+v", now)
			}
			return nil
		})
	}
	grace(3600)
	must.Patch(t, x.remote.ShadowPods(namespace), "slow", types.MergePatchType, []byte(`{"spec":{"gracePeriodSeconds":60}}`))
	grace(60)
	revive()
	x.goes(namespace, "slow")
}

// fuse ends a program with its first write for a home cluster or a namespace: the API
// server does it, and the program never learns the answer.
type fuse struct {
	next http.RoundTripper
	// names are parts of the paths of these writes. Those for homes of other tests, of which
	// there may be many, go through.
	names []string
	blow  context.CancelFunc
	log   func(string, ...any)
}

var errBlown = errors.New("the connection was lost")

func (f fuse) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := f.next.RoundTrip(request)
	path := request.URL.Path
	// A token is stored nowhere: each agent asks for its own.
	if request.Method == http.MethodGet || strings.Contains(path, "/events") || strings.HasSuffix(path, "/token") ||
		!slices.ContainsFunc(f.names, func(name string) bool { return strings.Contains(path, name) }) {
		return response, err
	}
	if err == nil && response.StatusCode < 300 {
		_ = response.Body.Close()
		f.log("%s %s", request.Method, path)
		f.blow()
		return nil, errBlown
	}
	return response, err
}

// lives runs one agent after the other, each of which dies with its first write to what
// has one of the names in its path, until done answers nil.
func lives(t *testing.T, names []string, what string, done func() error) {
	t.Helper()
	for count := 0; ; count++ {
		err := done()
		if err == nil {
			t.Logf("%d agents died until %s", count, what)
			return
		}
		if count == 40 {
			require.Fail(t, "too many agents died until "+what, "%v", err)
		}
		ctx, blow := context.WithCancel(t.Context())
		p, err := bed.StartAgent(ctx, quick, func(config *agent.Config) {
			config.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return fuse{next: next, names: names, blow: blow, log: t.Logf}
			})
		})
		require.NoError(t, err)
		ended := make(chan struct{})
		go func() { _ = p.Wait(); close(ended) }()
		eventually(t, "the agent dies or nothing is left to do", func() error {
			select {
			case <-ended:
				return nil
			default:
				return done()
			}
		})
		blow()
		<-ended
	}
}

// withoutAgent ends the agent that the tests share, for the length of a test.
func withoutAgent(t *testing.T) {
	t.Helper()
	require.NoError(t, program.Stop())
	t.Cleanup(func() {
		var err error
		program, err = bed.StartAgent(context.Background(), quick)
		require.NoError(t, err)
	})
}

// made counts the pods that are made in a namespace.
func made(t *testing.T, namespace string) func() []types.UID {
	t.Helper()
	watcher, err := bed.West.Client().CoreV1().Pods(namespace).Watch(t.Context(), list)
	require.NoError(t, err)
	t.Cleanup(watcher.Stop)
	var mu sync.Mutex
	var uids []types.UID
	go func() {
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added {
				mu.Lock()
				uids = append(uids, pod.UID)
				mu.Unlock()
			}
		}
	}()
	return func() []types.UID {
		mu.Lock()
		defer mu.Unlock()
		return append([]types.UID(nil), uids...)
	}
}

func TestAnAgentThatDiesWithEachWriteGetsThereInTheEnd(t *testing.T) {
	testbed.Require(t)
	withoutAgent(t)
	x := newHome(t, "h"+rand.String(6), func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Quota = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}
	})
	namespace := "ns-" + rand.String(6)
	names := []string{x.id, namespace}
	lives(t, names, "the home cluster is served", func() error {
		home := must.Get(t, bed.Agents.HomeClusters(), x.id)
		if !meta.IsStatusConditionTrue(home.Status.Conditions, remotev1alpha1.Ready) {
			return fmt.Errorf("conditions %+v", home.Status.Conditions)
		}
		return nil
	})
	x.login()

	x.request(namespace)
	lives(t, names, "the namespace is given", func() error {
		condition := x.condition(namespace)
		if condition == nil || condition.Status != metav1.ConditionTrue {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
	pods := made(t, namespace)
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever} {
		x.shadow(namespace, strings.ToLower(string(policy)), restart(policy))
	}
	lives(t, names, "the pods run", func() error {
		for _, name := range []string{"always", "never"} {
			shadow := must.Get(t, bed.Agents.ShadowPods(namespace), name)
			pod := podOf(t, namespace, name)
			if shadow.Status.Phase != remotev1alpha1.ShadowPodCreated || pod == nil || shadow.Status.PodUID != pod.UID || len(pod.Finalizers) > 0 ||
				pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("status %+v, pod %+v", shadow.Status, pod)
			}
			require.Zero(t, shadow.Status.Restarts)
		}
		return nil
	})
	assert.Len(t, pods(), 2, "no pod was made twice")

	for _, name := range []string{"always", "never"} {
		must.Delete(t, x.remote.ShadowPods(namespace), name)
	}
	lives(t, names, "the pods are gone", func() error {
		shadows := must.List(t, bed.Agents.ShadowPods(namespace))
		if len(shadows.Items) > 0 {
			return fmt.Errorf("%d ShadowPods", len(shadows.Items))
		}
		assert.Nil(t, podOf(t, namespace, "always"), "a ShadowPod went before its pod")
		assert.Nil(t, podOf(t, namespace, "never"), "a ShadowPod went before its pod")
		return nil
	})
	assert.Len(t, pods(), 2)

	must.Delete(t, bed.Agents.HomeClusters(), x.id)
	lives(t, names, "the home cluster is gone", func() error {
		if _, err := bed.Agents.HomeClusters().Get(t.Context(), x.id, get); !apierrors.IsNotFound(err) {
			return fmt.Errorf("HomeCluster: %w", err)
		}
		return nil
	})
	eventually(t, "its namespace is gone", func() error {
		if namespaceOf(t, namespace) != nil {
			return errors.New("it is there")
		}
		return nil
	})
}

func TestAnotherReplicaTakesOver(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	second, err := bed.StartAgent(t.Context(), quick)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, second.Stop()) })
	pods := made(t, namespace)
	x.shadow(namespace, "before", nil)
	x.runs(namespace, "before")
	withoutAgent(t)
	x.shadow(namespace, "after", nil)
	x.runs(namespace, "after")
	must.Delete(t, x.remote.ShadowPods(namespace), "before")
	x.goes(namespace, "before")
	assert.Len(t, pods(), 2)
}
