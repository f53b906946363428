package site

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

func TestMovesHaveTheirOwnRateInARemoteCluster(t *testing.T) {
	connect := func() remote.Access {
		config := &rest.Config{Host: "https://west.example", RateLimiter: flowcontrol.NewTokenBucketRateLimiter(50, 60)}
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		agent, err := clients.NewRemoteClient(config)
		require.NoError(t, err)
		return remote.Access{Client: client, Config: config, UID: "u", Remote: agent}
	}
	var own ownClients
	first := connect()
	got, err := own.of("west", first)
	require.NoError(t, err)
	assert.NotSame(t, first.Client, got.Client)
	assert.NotSame(t, first.Remote, got.Remote)
	assert.NotNil(t, got.Dynamic)
	assert.Equal(t, "u", got.UID)
	assert.Same(t, first.Config, got.Config, "streams have no rate")
	limiter := got.Client.CoreV1().RESTClient().GetRateLimiter()
	assert.InDelta(t, QPS, limiter.QPS(), 0)
	assert.NotSame(t, first.Client.CoreV1().RESTClient().GetRateLimiter(), limiter, "what claims need is not used up")

	again, err := own.of("west", first)
	require.NoError(t, err)
	assert.Same(t, got.Client, again.Client, "watches need one client a connection")
	other, err := own.of("west", connect())
	require.NoError(t, err)
	assert.NotSame(t, got.Client, other.Client, "new credentials are used")

	without := first
	without.Remote = nil
	got, err = own.of("west", without)
	require.NoError(t, err)
	assert.Nil(t, got.Remote, "a cluster without an agent has none for moves either")
}

func TestCallsAreMadeAtOnce(t *testing.T) {
	var met sync.WaitGroup
	met.Add(maxAtOnce)
	calls := make([]func() error, 3*maxAtOnce)
	for i := range calls {
		calls[i] = func() error {
			if i < maxAtOnce {
				// Each waits until all have been called.
				met.Done()
				met.Wait()
			}
			if i > 1 {
				return errors.New("another")
			}
			return map[int]error{1: errors.New("the first")}[i]
		}
	}
	assert.EqualError(t, AtOnce(calls), "the first")
	assert.NoError(t, AtOnce(nil))
}

func TestAListIsReadToItsLastPage(t *testing.T) {
	pages := func(n int) func(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
		return func(_ context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
			assert.EqualValues(t, PageSize, options.Limit)
			assert.Equal(t, "a=b", options.LabelSelector)
			at, _ := strconv.Atoi(options.Continue)
			list := &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(at)}}}}
			if at+1 < n {
				list.Continue = strconv.Itoa(at + 1)
			}
			return list, nil
		}
	}
	var names []string
	read := func(list func(context.Context, metav1.ListOptions) (*corev1.PodList, error)) error {
		names = nil
		return EachPage(t.Context(), metav1.ListOptions{LabelSelector: "a=b"}, list, func(page *corev1.PodList) {
			names = append(names, page.Items[0].Name)
		})
	}
	require.NoError(t, read(pages(1)))
	assert.Equal(t, []string{"0"}, names)
	require.NoError(t, read(pages(3)))
	assert.Equal(t, []string{"0", "1", "2"}, names)
	require.ErrorIs(t, read(pages(maxPages+1)), ErrEndless)

	expired := errors.New("the continue token is too old")
	err := read(func(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
		if options.Continue != "" {
			return nil, expired
		}
		return pages(3)(ctx, options)
	})
	assert.ErrorIs(t, err, expired, "half a list is no list")
}
