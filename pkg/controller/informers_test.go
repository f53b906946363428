package controller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// A program that is asked to end while it starts stops its informers before all of it has begun to watch them.
func TestAStoppedInformerTakesHandlersAndHasNoChangesForThem(t *testing.T) {
	pods := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Pods().Informer()
	ended := make(chan struct{})
	close(ended)
	pods.Run(ended)
	require.True(t, pods.IsStopped())
	changed := func(_, _ *corev1.Pod) { t.Error("nothing has changed") }
	for name, watch := range map[string]func() (func() error, error){
		"Watch":           func() (func() error, error) { return Watch(pods, changed) },
		"WatchMentioning": func() (func() error, error) { return WatchMentioning(pods, "x", changed) },
		"AddHandler":      func() (func() error, error) { return AddHandler(pods, cache.ResourceEventHandlerFuncs{}) },
	} {
		unwatch, err := watch()
		require.NoError(t, err, name)
		assert.NoError(t, unwatch(), name)
	}
}
