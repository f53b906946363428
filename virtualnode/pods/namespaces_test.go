package pods

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

func TestRequestsAreRepeatedUntilTheySucceed(t *testing.T) {
	var p retrySignal
	tries := 0
	err := newRetry(&p).until(t.Context(), func(context.Context) error {
		if tries++; tries < 3 {
			// retryNow is called during the pause, and ends it.
			defer p.retryNow()
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("not yet"))
		}
		return nil
	})
	assert.NoError(t, err)
	assert.Equal(t, 3, tries)
}

func TestWhatTheInformerMustKnowIsNotRepeated(t *testing.T) {
	for name, err := range map[string]error{
		"it must list anew":      apierrors.NewResourceExpired("too old"),
		"it must ask otherwise":  apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil),
		"it is told when to ask": apierrors.NewTooManyRequests("later", 1),
	} {
		t.Run(name, func(t *testing.T) {
			var p retrySignal
			tries := 0
			got := newRetry(&p).until(t.Context(), func(context.Context) error { tries++; return err })
			assert.Equal(t, err, got)
			assert.Equal(t, 1, tries)
		})
	}
}

func TestRepeatingEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var p retrySignal
	err := newRetry(&p).until(ctx, func(context.Context) error { cancel(); return errors.New("connection refused") })
	assert.ErrorIs(t, err, context.Canceled)
}

func TestANamespaceBelongsToOneNamespaceOfHome(t *testing.T) {
	for name, row := range map[string]struct {
		recorded, now types.UID
		want          bool
	}{
		"the same":                               {recorded: "u1", now: "u1", want: true},
		"nothing was recorded":                   {now: "u1", want: true},
		"the namespace of home is not known":     {recorded: "u1", want: true},
		"one that was made again, so of another": {recorded: "u1", now: "u2"},
	} {
		request := &remotev1alpha1.NamespaceRequest{Status: remotev1alpha1.NamespaceRequestStatus{HomeNamespaceUID: row.recorded}}
		assert.Equal(t, row.want, isFor(request, row.now), name)
	}
}
