package reflector

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestErrorsThatComeAgainAreRefusals(t *testing.T) {
	secrets := corev1.Resource("secrets")
	terminating := apierrors.NewForbidden(secrets, "password", errors.New("namespace shop is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		err     error
		refused bool
	}{
		"no answer":             {err: errors.New("connection refused")},
		"a conflict":            {err: apierrors.NewConflict(secrets, "password", nil)},
		"a time-out":            {err: apierrors.NewTimeoutError("slow", 1)},
		"a missing namespace":   {err: apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")},
		"a namespace that ends": {err: terminating},
		"a quota or a policy":   {err: apierrors.NewForbidden(secrets, "password", errors.New("exceeded quota")), refused: true},
		"an object not allowed": {err: apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), "password", nil),
			refused: true},
		"an object too large": {err: apierrors.NewRequestEntityTooLargeError("limit"), refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			var no *refusal
			assert.Equal(t, test.refused, errors.As(sortError(test.err), &no))
		})
	}
}

func TestQuotedMessagesAreOneBoundedLine(t *testing.T) {
	assert.Equal(t, "exceeded quota: used 5", quote("exceeded\n quota:\tused\x00 \x1b5"))
	assert.Len(t, []rune(quote(strings.Repeat("ä", 1000))), 401)
}

func TestARefusalIsToldOncePerObject(t *testing.T) {
	var told lastRefusals
	k := key{secretKind, "shop", "password"}
	assert.True(t, told.isNew(k, "p1", "no room"))
	assert.False(t, told.isNew(k, "p1", "no room"))
	assert.True(t, told.isNew(k, "p2", "no room"), "another pod")
	assert.True(t, told.isNew(k, "p1", "name taken"), "another reason")
	told.forget(k)
	assert.True(t, told.isNew(k, "p1", "name taken"), "after it was in step")
}
