package imports

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
)

// The last write of a run whose answer was lost may be carried out while the next run
// looks around: that one has found a record which is gone then.
func TestAnImportThatEndsWhileItIsLookedAtIsDone(t *testing.T) {
	for name, test := range map[string]struct {
		alter func(claim *corev1.PersistentVolumeClaim)
		want  outcome.Code
	}{
		"the claim has the volume":           {alter: func(*corev1.PersistentVolumeClaim) {}},
		"another claim of its name is there": {alter: func(c *corev1.PersistentVolumeClaim) { c.UID = "n2" }, want: outcome.Refused},
		"it has another volume":              {alter: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-n2" }, want: outcome.Refused},
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
				home: &access.Cluster{Client: fake.NewClientset(h.Real, h.Twin, h.Virtual, h.Claim)}}
			i.StorageNamespace = storage
			i.class = class(t, "")
			err := i.fromHome(t.Context(), found{volume: h.Real.Name, as: target.Name})
			require.Equal(t, test.want, outcome.Of(err), "%v", err)
			if err == nil {
				assert.Contains(t, out.String(), "persistentvolumeclaim/data is virtual already")
			}
		})
	}
}
