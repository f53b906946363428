package imports

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// The last write of a run whose answer was lost may take effect while the next run reads: that one
// has read a record which is gone then.
func TestAnImportThatEndsWhileItIsLookedAtIsDone(t *testing.T) {
	for name, test := range map[string]struct {
		alter func(claim *corev1.PersistentVolumeClaim)
		want  cli.ExitCode
	}{
		"the claim has the volume":           {alter: func(*corev1.PersistentVolumeClaim) {}},
		"another claim of its name is there": {alter: func(c *corev1.PersistentVolumeClaim) { c.UID = "n2" }, want: cli.Refused},
		"it has another volume":              {alter: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-n2" }, want: cli.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			h := home(begun, made, freed, twinned, bound, published, claimBound, cleared, restored)
			h.Virtual.Annotations["lodestone.dev/backing"] = "home/" + storage + "/pvc-n1/t1"
			h.Virtual.Spec.ClaimRef = reference(h.Claim)
			h.Virtual.Status.Phase = corev1.VolumeBound
			h.Claim.Spec.VolumeName = h.Virtual.Name
			test.alter(h.Claim)
			var out bytes.Buffer
			i := &importing{namespace: target.Namespace, homeID: "h1", streams: genericiooptions.IOStreams{Out: &out, ErrOut: &out},
				home: &cli.Cluster{Client: fake.NewClientset(h.Real, h.Twin, h.Virtual, h.Claim)}}
			i.StorageNamespace = storage
			i.class = class(t, "")
			err := i.fromHome(t.Context(), source{volume: h.Real.Name, as: target.Name})
			require.Equal(t, test.want, cli.ExitCodeOf(err), "%v", err)
			if err == nil {
				assert.Contains(t, out.String(), "persistentvolumeclaim/data is virtual already")
			}
		})
	}
}

func TestAQuotaIsJudgedAsItWillBeWhenTheOldClaimIsGone(t *testing.T) {
	sized := func(class, size string) *corev1.PersistentVolumeClaim {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Spec.StorageClassName = ptr.To(class)
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		return claim
	}
	const virtual, general = "lodestone.storageclass.storage.k8s.io/persistentvolumeclaims", "persistentvolumeclaims"
	for name, test := range map[string]struct {
		resource           corev1.ResourceName
		hard, used, wanted string
		fits               bool
	}{
		"a full quota of claims takes one for one":      {general, "3", "3", "1Gi", true},
		"… not if it holds more than it may already":    {general, "2", "4", "1Gi", false},
		"a full quota of storage takes as much as went": {corev1.ResourceRequestsStorage, "5Gi", "5Gi", "2Gi", true},
		"… not more": {corev1.ResourceRequestsStorage, "5Gi", "5Gi", "3Gi", false},
		"a quota of the virtual class takes none":        {virtual, "0", "0", "1Gi", false},
		"… or one more":                                  {virtual, "1", "0", "1Gi", true},
		"a quota of what claims do not count for is not": {corev1.ResourcePods, "0", "9", "1Gi", true},
	} {
		t.Run(name, func(t *testing.T) {
			quota := corev1.ResourceQuota{}
			quota.Spec.Hard = corev1.ResourceList{test.resource: resource.MustParse(test.hard)}
			quota.Status.Used = corev1.ResourceList{test.resource: resource.MustParse(test.used)}
			assert.Equal(t, test.fits, quotaFits([]corev1.ResourceQuota{{}, quota}, sized("lodestone", test.wanted), sized("fast", "2Gi")))
		})
	}
}

func TestWhoRefusesAClaim(t *testing.T) {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", told(why))
	}
	for name, test := range map[string]struct {
		err                     error
		denied, full, untriable bool
	}{
		"nobody":           {},
		"a quota":          {err: forbidden("exceeded quota: q, requested: persistentvolumeclaims=1"), denied: true, full: true},
		"a limit":          {err: forbidden("maximum storage usage per PersistentVolumeClaim is 1Gi"), denied: true},
		"a policy":         {err: apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolumeClaim"}, "data", nil), denied: true},
		"a lack of rights": {err: forbidden(`User "bo" cannot create resource "persistentvolumeclaims" in API group ""`)},
		"a webhook of no answer": {err: apierrors.NewBadRequest(`admission webhook "x" does not support dry run`), denied: true,
			untriable: true},
		"a server of no answer":   {err: assert.AnError},
		"a name that is taken":    {err: apierrors.NewAlreadyExists(schema.GroupResource{}, "data")},
		"a wrong claim otherwise": {err: apierrors.NewBadRequest("no"), denied: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.denied, denied(test.err))
			assert.Equal(t, test.full, quotaExceeded(test.err))
			assert.Equal(t, test.untriable, cannotDryRun(test.err))
			if test.full {
				assert.True(t, isStale(test.err), "it may have counted what is gone")
			}
		})
	}
}

// told is an error with this text.
type told string

func (e told) Error() string { return string(e) }
