package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// owned is a pod that uses claim data, of a controller.
func owned(kind, version, owner, node string) *corev1.Pod {
	pod := user("shop", owner+"-1", "data", node)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: owner, UID: "o", Controller: ptr.To(true)}}
	return pod
}

func TestAPodOfAJobThatRunsRefusesAMove(t *testing.T) {
	done := owned("Job", "batch/v1", "nightly", "home-1")
	done.Status.Phase = corev1.PodSucceeded
	for name, row := range map[string]struct {
		pod     *corev1.Pod
		refused bool
	}{
		"it runs":             {owned("Job", "batch/v1", "nightly", "home-1"), true},
		"it has no node":      {owned("Job", "batch/v1", "nightly", ""), false},
		"it has ended":        {done, false},
		"a StatefulSet's":     {owned("StatefulSet", "apps/v1", "db", "home-1"), false},
		"somebody else's Job": {owned("Job", "example.com/v1", "nightly", "home-1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{Client: fake.NewClientset(row.pod), Registry: NewRegistry(), Node: func(string) *corev1.Node { return nil }})
			r := recordIn("Prepare")
			r.Namespace = "shop"
			_, err := c.inspectPods(t.Context(), r)
			if !row.refused {
				require.NoError(t, err)
				return
			}
			var why refusal
			require.ErrorAs(t, err, &why)
			assert.Contains(t, string(why), `pod nightly-1 of Job nightly`)
			assert.Contains(t, string(why), `kubectl patch job nightly -n shop -p '{"spec":{"suspend":true}}'`)
		})
	}
}

func TestClaimsOfAMoveHaveTheirDataInOneCluster(t *testing.T) {
	in := func(name, cluster string) record.Claim {
		return record.Claim{Name: name, Source: record.Copy{Ref: backing.Ref{Cluster: cluster}}}
	}
	west, east := in("data", "west"), in("log", "east")
	require.NoError(t, oneSource(nil, &west))
	require.NoError(t, oneSource([]record.Claim{in("log", "west")}, &west))
	var why refusal
	require.ErrorAs(t, oneSource([]record.Claim{west}, &east), &why)
	for _, says := range []string{`"data" is in cluster west`, `"log" in cluster east`, "one after another"} {
		assert.Contains(t, string(why), says)
	}
}
