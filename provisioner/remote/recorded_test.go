package remote

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// stored is one RemoteCluster on a fake API server.
type stored struct {
	mu       sync.Mutex
	object   v1alpha1.RemoteCluster
	version  int
	writes   int
	failures []error
	hold     chan struct{}
}

func (s *stored) Get(context.Context, string, metav1.GetOptions) (*v1alpha1.RemoteCluster, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.object.DeepCopy()
	found.ResourceVersion = fmt.Sprint(s.version)
	return found, nil
}

func (s *stored) UpdateStatus(_ context.Context, remote *v1alpha1.RemoteCluster, _ metav1.UpdateOptions) (*v1alpha1.RemoteCluster, error) {
	if s.hold != nil {
		<-s.hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if len(s.failures) > 0 {
		err := s.failures[0]
		s.failures = s.failures[1:]
		return nil, err
	}
	if remote.ResourceVersion != fmt.Sprint(s.version) {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "remoteclusters"}, remote.Name, nil)
	}
	s.version++
	s.object = *remote.DeepCopy()
	return remote, nil
}

func newRecorder() *Cluster {
	return &Cluster{id: "west", recorded: map[string]bool{}, waiting: map[string]int{}, writing: make(chan struct{}, 1)}
}

func (c *Cluster) waitFor(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiting) == n
	}, 20*time.Second, time.Millisecond)
}

func TestManyNewNamespacesAreRecordedInTwoWrites(t *testing.T) {
	c, s := newRecorder(), &stored{hold: make(chan struct{})}
	var running sync.WaitGroup
	for n := range 100 {
		for range 2 {
			running.Go(func() { assert.NoError(t, c.record(t.Context(), s, fmt.Sprintf("ns-%d", n))) })
		}
	}
	c.waitFor(t, 100)
	close(s.hold)
	running.Wait()
	assert.Len(t, s.object.Status.Namespaces, 100)
	assert.IsIncreasing(t, s.object.Status.Namespaces)
	assert.LessOrEqual(t, s.writes, 2, "those that the first writer knew of, and all others")
	assert.Empty(t, c.waiting)
	require.NoError(t, c.record(t.Context(), s, "ns-7"))
	assert.LessOrEqual(t, s.writes, 2, "it is recorded")
}

func TestARecordThatFailsIsMadeByTheNextCaller(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "west", nil)
	c, s := newRecorder(), &stored{failures: []error{conflict, apierrors.NewInternalError(assert.AnError)}}
	require.ErrorContains(t, c.record(t.Context(), s, "one"), assert.AnError.Error(), "the conflict is tried again, what else fails is not")
	assert.Empty(t, c.recorded)
	assert.Empty(t, c.waiting)
	require.NoError(t, c.record(t.Context(), s, "two"))
	assert.Equal(t, []string{"two"}, s.object.Status.Namespaces)
	require.NoError(t, c.record(t.Context(), s, "one"))
	assert.Equal(t, []string{"one", "two"}, s.object.Status.Namespaces)
}

func TestACallerWhoseTimeIsUpDoesNotWaitForTheWriter(t *testing.T) {
	c, s := newRecorder(), &stored{hold: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, c.record(t.Context(), s, "one")) })
	require.Eventually(t, func() bool { return len(c.writing) == 1 }, 20*time.Second, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.record(ctx, s, "two"), context.Canceled)
	c.waitFor(t, 1)
	close(s.hold)
	running.Wait()
}

func TestNothingIsTakenForRecordedInARemoteClusterThatIsGone(t *testing.T) {
	c, s := newRecorder(), &stored{hold: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() { assert.ErrorIs(t, c.record(t.Context(), s, "one"), errRemade) })
	require.Eventually(t, func() bool { return len(c.writing) == 1 }, 20*time.Second, time.Millisecond)
	c.adopt("another")
	close(s.hold)
	running.Wait()
	assert.Empty(t, c.recorded)
}
