package claims

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

var (
	claimsResource = schema.GroupResource{Resource: "persistentvolumeclaims"}
	kind           = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	at             = types.NamespacedName{Namespace: "shop", Name: "data"}
)

func sent(err error) error { return &url.Error{Op: "Post", URL: "https://west", Err: err} }

func terminatingNamespace() error {
	err := apierrors.NewForbidden(claimsResource, "data", errors.New("the namespace is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "NamespaceTerminating"})
	return err
}

func TestSortCreateErrorRefusesWhatIsCertain(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		reason string
		says   string
	}{
		"a claim of that name that is not ours": {err: errForeign, reason: "ForeignClaim", says: "shop/data"},
		"a namespace that is being deleted":     {err: terminatingNamespace(), reason: "NamespaceTerminating", says: "is being deleted"},
		"a quota that is used up": {
			err:    apierrors.NewForbidden(claimsResource, "data", errors.New("exceeded quota: storage, requested: 1Gi")),
			reason: "QuotaExceeded", says: "requested: 1Gi"},
		"a size that a LimitRange does not allow": {
			err: apierrors.NewForbidden(claimsResource, "data",
				errors.New("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi")),
			reason: "OutsideLimits", says: "is 1Gi, but request is 2Gi"},
		"a missing right, or an admission plugin": {
			err:    apierrors.NewForbidden(claimsResource, "data", errors.New("policy says no")),
			reason: "NotAllowed", says: "policy says no"},
		"a namespace that is missing": {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"),
			reason: "NamespaceMissing", says: "no namespace shop"},
		"a claim that is not valid there": {
			err:    apierrors.NewInvalid(kind, "data", field.ErrorList{field.Required(field.NewPath("spec"), "size")}),
			reason: "NotValid", says: "size"},
		"a request that is not understood": {err: apierrors.NewBadRequest("admission webhook says no"), reason: "NotValid",
			says: "webhook says no"},
		"a request that is not acceptable": {err: status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable), reason: "NotValid"},
	} {
		t.Run(name, func(t *testing.T) {
			for cluster, place := range map[string]string{keys.Home: "the home cluster", "west": "cluster west"} {
				got := sortCreateError(test.err, cluster, at, namespaceState{})
				require.NotNil(t, got.refusal)
				require.NoError(t, got.retry)
				assert.False(t, got.unsent)
				assert.Equal(t, cluster, got.refusal.Cluster)
				assert.Empty(t, got.refusal.Node)
				assert.Equal(t, test.reason, got.refusal.Reason)
				assert.Contains(t, got.refusal.Message, test.says)
				assert.Contains(t, got.refusal.Message, place)
			}
		})
	}
}

func status(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}}
}

func TestSortCreateErrorRetriesWhatNobodyKnows(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		unsent bool
	}{
		"an earlier claim of ours is still going": {err: errTerminating},
		"a conflict":                          {err: apierrors.NewConflict(claimsResource, "data", errors.New("changed"))},
		"too many requests":                   {err: apierrors.NewTooManyRequests("slow down", 1), unsent: true},
		"a server error":                      {err: apierrors.NewInternalError(errors.New("etcd"))},
		"a server that is starting":           {err: apierrors.NewServiceUnavailable("starting")},
		"a time-out of the server":            {err: apierrors.NewTimeoutError("slow", 1)},
		"a time-out inside the server":        {err: apierrors.NewServerTimeout(claimsResource, "create", 1)},
		"credentials that are not accepted":   {err: apierrors.NewUnauthorized("expired"), unsent: true},
		"a reason that nobody foresaw":        {err: status(http.StatusTeapot, "Teapot")},
		"no answer in time":                   {err: sent(context.DeadlineExceeded)},
		"a connection that was lost":          {err: sent(&net.OpError{Op: "read", Err: syscall.ECONNRESET})},
		"a request that could not be written": {err: sent(&net.OpError{Op: "write", Err: syscall.EPIPE})},
		"nobody listens: it was never sent":   {err: sent(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), unsent: true},
		"a certificate that is not trusted":   {err: sent(&tls.CertificateVerificationError{Err: errors.New("expired")}), unsent: true},
		"no way there: it was never sent":     {err: sent(&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}), unsent: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := sortCreateError(test.err, "west", at, namespaceState{})
			assert.Nil(t, got.refusal, "nothing is certain")
			require.ErrorIs(t, got.retry, test.err)
			assert.Equal(t, test.unsent, got.unsent)
		})
	}
	assert.Equal(t, createResult{}, sortCreateError(nil, "west", at, namespaceState{}), "it is there")
}

func TestSortCreateErrorWaitsForRightsThatAreNew(t *testing.T) {
	noRights := apierrors.NewForbidden(claimsResource, "data",
		errors.New(`User "home" cannot create resource "persistentvolumeclaims" in API group "" in the namespace "shop"`))
	for name, test := range map[string]struct {
		err    error
		in     namespaceState
		reason string
		says   string
	}{
		"rights that may be on their way": {err: noRights, in: namespaceState{asked: true, fresh: true}},
		"a namespace that may be on its way": {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"),
			in: namespaceState{asked: true, fresh: true}},
		"rights that do not come": {err: noRights, in: namespaceState{asked: true}, reason: "NotAllowed",
			says: "NamespaceRequest shop"},
		"a namespace that does not come": {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"),
			in: namespaceState{asked: true}, reason: "NotAllowed", says: "NamespaceRequest shop"},
		"admission does not change with time": {err: apierrors.NewForbidden(claimsResource, "data", errors.New("policy says no")),
			in: namespaceState{asked: true, fresh: true}, reason: "NotAllowed", says: "policy says no"},
		"a quota neither": {err: apierrors.NewForbidden(claimsResource, "data", errors.New("exceeded quota: storage")),
			in: namespaceState{asked: true, fresh: true}, reason: "QuotaExceeded", says: "storage"},
		"where nobody is asked, rights do not come": {err: noRights, in: namespaceState{fresh: true}, reason: "NotAllowed",
			says: "deploy/remote-volumes"},
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

// TestAClaimIsLockedOnlyIfTheAPIServersConfirmThatItsVolumeIsBehind is about caches that lag: the volume's behind those of claims.
func TestAClaimIsLockedOnlyIfTheAPIServersConfirmThatItsVolumeIsBehind(t *testing.T) {
	const uid types.UID = "0b5c7a52-6f0e-4b2e-9a53-3f1f5c0d9e11"
	place := backing.Place{HomeID: "h1", StorageNamespace: "lodestone-storage"}
	twin := func(name, generation string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-storage", Name: name,
			UID:         types.UID("b-" + name),
			Labels:      map[string]string{keys.ClaimUID: string(uid), keys.HomeID: "h1"},
			Annotations: map[string]string{keys.Claim: "shop/data", keys.Generation: generation}}}
	}
	for name, row := range map[string]struct {
		change func(volume *corev1.PersistentVolume, newer, claim *corev1.PersistentVolumeClaim)
		moving bool
		locked bool
	}{
		"it is behind":    {locked: true},
		"a move holds it": {moving: true},
		"its volume stands for the newer one by now": {change: func(v *corev1.PersistentVolume, newer, _ *corev1.PersistentVolumeClaim) {
			v.Annotations = map[string]string{keys.Backing: backing.RefTo(keys.Home, newer).String(), keys.Generation: "1"}
		}},
		"the older one was chosen since": {change: func(v *corev1.PersistentVolume, _, _ *corev1.PersistentVolumeClaim) {
			v.Annotations[keys.Generation] = "2"
		}},
		"the newer one was replaced since": {change: func(_ *corev1.PersistentVolume, newer, _ *corev1.PersistentVolumeClaim) {
			newer.Labels[keys.MoveOf] = "m2"
		}},
		"the newer one is gone": {change: func(_ *corev1.PersistentVolume, newer, _ *corev1.PersistentVolumeClaim) { newer.Name = "other" }},
		"its volume is another one": {change: func(v *corev1.PersistentVolume, _, _ *corev1.PersistentVolumeClaim) {
			v.UID = "v2"
		}},
	} {
		older, newer := twin("pvc-"+string(uid), ""), twin("pvc-"+string(uid)+"-1", "1")
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(uid), UID: "v1",
			Annotations: map[string]string{keys.Backing: backing.RefTo(keys.Home, older).String()}}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: uid}}
		o := steps.Observation{UID: uid, Claim: claim.DeepCopy(), Volume: volume.DeepCopy()}
		o.Standing = place.Compare(o.Volume, types.NamespacedName{Namespace: "shop", Name: "data"}, uid,
			[]backing.Copy{{Cluster: keys.Home, Claim: older.DeepCopy()}, {Cluster: keys.Home, Claim: newer.DeepCopy()}})
		require.True(t, o.Standing.Behind(), name)
		if row.change != nil {
			row.change(volume, newer, claim)
		}
		client := fake.NewClientset(older, newer, volume, claim)
		f := New(Config{Client: client, Place: place, Held: func(types.UID) bool { return row.moving }})
		err := f.lockClaim(t.Context(), o)
		have, lookErr := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, lookErr)
		if row.locked {
			require.NoError(t, err, name)
			assert.Equal(t, keys.MovingNow, have.Labels[keys.Moving], name)
			assert.Equal(t, map[string]string{keys.Move: keys.NoMove, keys.Newer: backing.RefTo(keys.Home, newer).String()}, have.Annotations, name)
			continue
		}
		require.ErrorIs(t, err, errChanged, name)
		assert.Empty(t, have.Labels, name)
	}
}

// Nothing has to be confirmed: to which volume a twin is bound never changes.
func TestAClaimWhoseTwinIsBoundToAnotherVolumeIsLocked(t *testing.T) {
	for name, moving := range map[string]bool{"it is": false, "not while a move holds it": true} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"}}
		client := fake.NewClientset(claim)
		f := New(Config{Client: client, Held: func(types.UID) bool { return moving }})
		err := f.lockClaim(t.Context(), steps.Observation{UID: "u1", Claim: claim.DeepCopy(), Volume: &corev1.PersistentVolume{}})
		have, lookErr := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, lookErr)
		if moving {
			require.ErrorIs(t, err, errChanged, name)
			assert.Empty(t, have.Labels, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, keys.MovingNow, have.Labels[keys.Moving], name)
		assert.Equal(t, map[string]string{keys.Move: keys.NoMove}, have.Annotations, name)
	}
}
