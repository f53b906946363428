package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
)

// fuse ends a program with its first write: the API server does it, and the
// program never learns the answer.
type fuse struct {
	next http.RoundTripper
	blow context.CancelFunc
	log  func(string, ...any)
}

var errBlown = errors.New("the connection was lost")

func (f fuse) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := f.next.RoundTrip(request)
	path := request.URL.Path
	if request.Method == http.MethodGet || strings.Contains(path, "/events") || strings.HasSuffix(path, "/leases/lodestone-remote-agent") {
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

// lives runs one agent after the other, each of which dies with its first write,
// until done answers nil.
func lives(t *testing.T, what string, done func() error) {
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
			config.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper { return fuse{next: next, blow: blow, log: t.Logf} })
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
	lives(t, "the home cluster is served", func() error {
		home, err := bed.Agents.HomeClusters().Get(t.Context(), x.id, get)
		require.NoError(t, err)
		if !meta.IsStatusConditionTrue(home.Status.Conditions, remotev1alpha1.Ready) {
			return fmt.Errorf("conditions %+v", home.Status.Conditions)
		}
		return nil
	})
	x.login()

	namespace := "ns-" + rand.String(6)
	x.request(namespace)
	lives(t, "the namespace is given", func() error {
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
	lives(t, "the pods run", func() error {
		for _, name := range []string{"always", "never"} {
			shadow, err := bed.Agents.ShadowPods(namespace).Get(t.Context(), name, get)
			require.NoError(t, err)
			pod := podOf(t, namespace, name)
			if shadow.Status.Phase != remotev1alpha1.ShadowPodCreated || pod == nil || shadow.Status.PodUID != pod.UID || len(pod.Finalizers) > 0 || pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("status %+v, pod %+v", shadow.Status, pod)
			}
			require.Zero(t, shadow.Status.Restarts)
		}
		return nil
	})
	assert.Len(t, pods(), 2, "no pod was made twice")

	for _, name := range []string{"always", "never"} {
		require.NoError(t, x.remote.ShadowPods(namespace).Delete(t.Context(), name, remove))
	}
	lives(t, "the pods are gone", func() error {
		shadows, err := bed.Agents.ShadowPods(namespace).List(t.Context(), list)
		require.NoError(t, err)
		if len(shadows.Items) > 0 {
			return fmt.Errorf("%d ShadowPods", len(shadows.Items))
		}
		assert.Nil(t, podOf(t, namespace, "always"), "a ShadowPod went before its pod")
		assert.Nil(t, podOf(t, namespace, "never"), "a ShadowPod went before its pod")
		return nil
	})
	assert.Len(t, pods(), 2)

	require.NoError(t, bed.Agents.HomeClusters().Delete(t.Context(), x.id, remove))
	lives(t, "the home cluster is gone", func() error {
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
	require.NoError(t, x.remote.ShadowPods(namespace).Delete(t.Context(), "before", remove))
	x.goes(namespace, "before")
	assert.Len(t, pods(), 2)
}
