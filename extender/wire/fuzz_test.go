package wire_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// addSeeds adds what kube-scheduler writes, whole and broken off.
func addSeeds(f *testing.F, requests ...any) {
	f.Helper()
	for _, request := range requests {
		body, err := json.Marshal(request)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		f.Add(body[:len(body)/2])
	}
}

// FuzzScan compares with encoding/json: Scan refuses a body, or reads it alike.
func FuzzScan(f *testing.F) {
	addSeeds(f,
		extenderv1.ExtenderArgs{Pod: richPod(), NodeNames: &[]string{"a", "b.example"}},
		extenderv1.ExtenderArgs{Pod: somePod(), Nodes: &corev1.NodeList{Items: []corev1.Node{
			{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{keys.Cluster: "west", "zone": "b"}}}, {},
		}}},
		extenderv1.ExtenderArgs{},
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		scansLikeDecode(t, body)
	})
}

// FuzzScanPreempt does the same for ScanPreempt.
func FuzzScanPreempt(f *testing.F) {
	addSeeds(f,
		extenderv1.ExtenderPreemptionArgs{Pod: somePod(), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"a": {Pods: meta("1", "2"), NumPDBViolations: 1}, "b": {}}},
		extenderv1.ExtenderPreemptionArgs{Pod: somePod(), NodeNameToVictims: map[string]*extenderv1.Victims{"a": {Pods: whole("1")}}},
		extenderv1.ExtenderPreemptionArgs{},
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		scansPreemptLikeDecode(t, body)
	})
}
