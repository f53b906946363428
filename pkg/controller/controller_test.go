package controller_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/controller"
)

// run works on a queue until the test ends, or stop is called.
func run(t *testing.T, q *controller.Queue[string], work controller.Sync[string]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx, 2, work) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func TestAKeyIsWorkedOnAgainAfterAnError(t *testing.T) {
	q := controller.NewQueue[string](controller.QueueConfig{Name: "test", FirstRetry: time.Millisecond, LastRetry: time.Millisecond})
	calls := make(chan string, 10)
	failed := false
	run(t, q, func(_ context.Context, key string) (time.Duration, error) {
		calls <- key
		if !failed {
			failed = true
			return 0, errors.New("not yet")
		}
		return 0, nil
	})
	q.Add("a")
	assert.Equal(t, "a", <-calls)
	assert.Equal(t, "a", <-calls)
}

func TestAKeyIsWorkedOnAgainWhenTheWorkSaysSo(t *testing.T) {
	q := controller.NewQueue[string](controller.QueueConfig{Name: "test", FirstRetry: time.Hour, LastRetry: time.Hour})
	calls := make(chan string, 10)
	again := time.Millisecond
	run(t, q, func(_ context.Context, key string) (time.Duration, error) {
		calls <- key
		defer func() { again = 0 }()
		return again, nil
	})
	q.AddAfter("a", time.Millisecond)
	assert.Equal(t, "a", <-calls)
	assert.Equal(t, "a", <-calls)
}

func TestWorkThatHangsIsEnded(t *testing.T) {
	q := controller.NewQueue[string](controller.QueueConfig{Name: "test", FirstRetry: time.Hour, LastRetry: time.Hour,
		Timeout: time.Millisecond})
	ended := make(chan error, 1)
	run(t, q, func(ctx context.Context, _ string) (time.Duration, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, ctx.Err()
	})
	q.Add("a")
	assert.ErrorIs(t, <-ended, context.DeadlineExceeded)
}

func TestAStepThatWasBegunIsFinishedWhereThatIsAskedFor(t *testing.T) {
	for name, finish := range map[string]bool{"it is finished": true, "it is cut short": false} {
		t.Run(name, func(t *testing.T) {
			q := controller.NewQueue[string](controller.QueueConfig{Name: "test", FinishSteps: finish})
			begun, over, seen := make(chan bool), make(chan bool), make(chan error, 1)
			stop := run(t, q, func(ctx context.Context, _ string) (time.Duration, error) {
				begun <- true
				<-over
				seen <- ctx.Err()
				return 0, nil
			})
			q.Add("a")
			<-begun
			stopped := make(chan bool)
			go func() { stop(); close(stopped) }()
			if !finish {
				// Only the end of its context tells it to stop.
				time.Sleep(10 * time.Millisecond)
			}
			close(over)
			<-stopped
			if finish {
				require.NoError(t, <-seen)
			} else {
				require.Error(t, <-seen)
			}
		})
	}
}

func TestHandlerTellsOfWhatWasAndIs(t *testing.T) {
	pod := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	type call struct{ was, now *corev1.Pod }
	var calls []call
	handler := controller.Handler(func(was, now *corev1.Pod) { calls = append(calls, call{was, now}) })
	handler.OnAdd(pod("a"), true)
	handler.OnUpdate(pod("a"), pod("b"))
	handler.OnDelete(pod("b"))
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "c", Obj: pod("c")})
	handler.OnAdd(&corev1.Node{}, true) // No pod.
	assert.Equal(t, []call{{nil, pod("a")}, {pod("a"), pod("b")}, {pod("b"), nil}, {pod("c"), nil}}, calls)
	assert.Equal(t, pod("b"), controller.Either(pod("a"), pod("b")))
	assert.Equal(t, pod("a"), controller.Either(pod("a"), nil))
}

func TestTheSameIsNotToldAgainSoon(t *testing.T) {
	start := time.Unix(0, 0)
	told := controller.NewLastMessage[string, string](time.Minute)
	news := func(what string, after time.Duration) bool {
		_, news := told.Due("claim", what, start.Add(after))
		return news
	}
	assert.True(t, news("a", 0))
	assert.False(t, news("a", 59*time.Second))
	assert.True(t, news("b", 59*time.Second))
	assert.True(t, news("a", 59*time.Second), "something else was told in between")
	assert.True(t, news("a", 2*time.Minute), "that is long ago")
	before, known := told.Forget("claim")
	assert.Equal(t, "a", before)
	assert.True(t, known)
	assert.True(t, news("a", 2*time.Minute))
}

// A program that is told to end while it starts must end in good order.
func TestAHandlerOfAStoppedInformerIsNoError(t *testing.T) {
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, nil)
	ended, end := context.WithCancel(t.Context())
	end()
	informer.RunWithContext(ended)
	unwatch, err := controller.Watch(informer, func(_, _ *corev1.Pod) {})
	require.NoError(t, err)
	require.NoError(t, unwatch())
}
