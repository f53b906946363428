package flow

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestSortCreateErrorWaitsForRightsThatAreNew(t *testing.T) {
	noRights := apierrors.NewForbidden(claimsResource, "data", errors.New(`User "home" cannot create resource "persistentvolumeclaims" in API group "" in the namespace "shop"`))
	for name, test := range map[string]struct {
		err    error
		in     given
		reason string
		says   string
	}{
		"rights that may be on their way":           {err: noRights, in: given{asked: true, fresh: true}},
		"a namespace that may be on its way":        {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), in: given{asked: true, fresh: true}},
		"rights that do not come":                   {err: noRights, in: given{asked: true}, reason: "NotAllowed", says: "NamespaceRequest shop"},
		"a namespace that does not come":            {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), in: given{asked: true}, reason: "NotAllowed", says: "NamespaceRequest shop"},
		"admission does not change with time":       {err: apierrors.NewForbidden(claimsResource, "data", errors.New("policy says no")), in: given{asked: true, fresh: true}, reason: "NotAllowed", says: "policy says no"},
		"a quota neither":                           {err: apierrors.NewForbidden(claimsResource, "data", errors.New("exceeded quota: storage")), in: given{asked: true, fresh: true}, reason: "QuotaExceeded", says: "storage"},
		"where nobody is asked, rights do not come": {err: noRights, in: given{fresh: true}, reason: "NotAllowed", says: "deploy/remote-volumes"},
	} {
		t.Run(name, func(t *testing.T) {
			got := sortCreateError(test.err, "west", at, test.in)
			if test.reason == "" {
				require.ErrorIs(t, got.retry, test.err)
				assert.True(t, got.unsent, "it was certainly not carried out")
				return
			}
			require.NotNil(t, got.refusal)
			assert.Equal(t, test.reason, got.refusal.Reason)
			assert.Contains(t, got.refusal.Message, test.says)
		})
	}
}
