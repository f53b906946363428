package agent

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// snapshots is all that an API server needs to take VolumeSnapshots.
const snapshots = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: volumesnapshots.snapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: snapshot.storage.k8s.io
  names: {kind: VolumeSnapshot, plural: volumesnapshots, singular: volumesnapshot, listKind: VolumeSnapshotList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func TestAHomeClusterTakesSnapshotsOfItsOwnClaimsOnly(t *testing.T) {
	testbed.Require(t)
	_, err := bed.West.Kubectl(t.Context(), snapshots, "apply", "-f", "-")
	require.NoError(t, err)
	_, err = bed.West.Kubectl(t.Context(), "", "wait", "--for=condition=Established", "crd/volumesnapshots.snapshot.storage.k8s.io", "--timeout=30s")
	require.NoError(t, err)
	x, other := newTenant(t, nil), newTenant(t, nil)
	own, foreign := x.namespace(), other.namespace()
	take := func(namespace, name, home, source string) error {
		body := fmt.Sprintf(`{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":%q,"labels":{%q:%q}},"spec":{"source":%s}}`,
			name, keys.HomeID, home, source)
		return x.client.CoreV1().RESTClient().Post().AbsPath("/apis/snapshot.storage.k8s.io/v1/namespaces/"+namespace+"/volumesnapshots").
			SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
	}
	const claim, content = `{"persistentVolumeClaimName":"data"}`, `{"volumeSnapshotContentName":"anybody's"}`
	eventually(t, "home may take snapshots", func() error { return take(own, "good", x.id, claim) })
	for name, err := range map[string]error{
		"one of a content":             take(own, "stolen", x.id, content),
		"one of a claim and a content": take(own, "both", x.id, `{"persistentVolumeClaimName":"data","volumeSnapshotContentName":"anybody's"}`),
		"one of nothing":               take(own, "nothing", x.id, `{}`),
		"one of another home":          take(own, "theirs", other.id, claim),
		"one in another's namespace":   take(foreign, "there", x.id, claim),
	} {
		assert.ErrorContains(t, err, "forbidden", name)
	}
}
