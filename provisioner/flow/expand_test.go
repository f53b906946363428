package flow

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

func TestAnswersToARequestForAnotherSize(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fixed")},
	}
	forbidden := func(text string) error { return apierrors.NewForbidden(claimsResource, "data", errors.New(text)) }
	for name, test := range map[string]struct {
		err    error
		reason string // empty: it is tried again
		says   string
	}{
		"the class does not allow it": {
			err:    forbidden("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"),
			reason: "ExpansionNotAllowed", says: `real storage class "fixed" in cluster west does not allow expansion: let its administrator set allowVolumeExpansion there`},
		"the quota leaves no room": {err: forbidden("exceeded quota: storage, requested: 2Gi"), reason: "QuotaExceeded", says: "leaves no room for 3Gi"},
		"there are no rights":      {err: forbidden(`User "home" cannot patch resource "persistentvolumeclaims"`), reason: "NotAllowed", says: "bind the rights"},
		"a policy says no":         {err: forbidden("policy says no"), reason: "NotAllowed", says: "policy says no"},
		"it is not valid":          {err: apierrors.NewInvalid(kind, "data", nil), reason: "NotValid", says: "does not accept 3Gi"},
		"a conflict":               {err: apierrors.NewConflict(claimsResource, "data", errors.New("changed"))},
		"it is gone":               {err: apierrors.NewNotFound(claimsResource, "data")},
		"too many requests":        {err: apierrors.NewTooManyRequests("later", 1)},
		"a server error":           {err: apierrors.NewInternalError(errors.New("etcd"))},
		"a time-out":               {err: sent(errors.New("deadline exceeded"))},
	} {
		t.Run(name, func(t *testing.T) {
			declined := sortExpandError(test.err, "west", claim, resource.MustParse("3Gi"))
			if test.reason == "" {
				assert.Nil(t, declined)
				return
			}
			require.NotNil(t, declined)
			assert.Equal(t, test.reason, declined.Reason)
			assert.Contains(t, declined.Message, test.says)
			assert.Equal(t, "3Gi", declined.Size.String())
		})
	}
}

func TestARefusedSizeIsAskedForEverMoreSeldom(t *testing.T) {
	m, now := newMemory(), time.Now()
	assert.Nil(t, m.declinedBy("u1", now))
	var pauses []time.Duration
	for range 6 {
		m.setDeclined("u1", &decide.Declined{Size: resource.MustParse("3Gi"), Reason: "QuotaExceeded"}, now)
		kept := m.declinedBy("u1", now)
		require.NotNil(t, kept)
		pauses = append(pauses, kept.Until.Sub(now))
		now = kept.Until
		assert.Nil(t, m.declinedBy("u1", now), "it is time to ask again")
	}
	const m1 = time.Minute
	assert.Equal(t, []time.Duration{m1, 2 * m1, 4 * m1, 8 * m1, 10 * m1, 10 * m1}, pauses)

	m.setDeclined("u1", &decide.Declined{Size: resource.MustParse("2Gi")}, now)
	assert.Equal(t, m1, m.declinedBy("u1", now).Until.Sub(now), "another size begins anew")
	m.setDeclined("u1", nil, now)
	assert.Nil(t, m.declinedBy("u1", now))
	m.setDeclined("u1", &decide.Declined{Size: resource.MustParse("2Gi")}, now)
	m.forget("u1")
	assert.Nil(t, m.declinedBy("u1", now))
}

func TestOnlyTheSizeIsWritten(t *testing.T) {
	on := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u1", ResourceVersion: "7"}}
	patch, err := statusPatch(on, &corev1.PersistentVolumeClaimStatus{
		Phase:    corev1.ClaimLost,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi"), "other": resource.MustParse("1")},
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{"metadata":{"uid":"u1","resourceVersion":"7"},"status":{"conditions":null,
		"capacity":{"storage":"3Gi"},"allocatedResources":{"storage":null},"allocatedResourceStatuses":{"storage":null}}}`, string(patch))
}
