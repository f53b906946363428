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
)

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
