package kind

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTwinIsNeverMountedAndItsFilesOutliveThePod(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: atHome}
	home.apply(t, db.manifest())
	pod := db.ready(t, 1)[0]
	data := volumeOf(t, shop, db.claim(0))
	require.Equal(t, home, data.in)
	before := data.sum(t, "blob")

	deletePod(t, pod)
	next := db.ready(t, 1)[0]

	assert.NotEqual(t, pod.UID, next.UID)
	assert.Equal(t, before, data.sum(t, "blob"))
	assert.Len(t, data.starts(t), 2)
	pods, err := home.client.CoreV1().Pods(storage).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, beside := range pods.Items { // movers of other tests
		for _, mounted := range beside.Spec.Volumes {
			if claim := mounted.PersistentVolumeClaim; claim != nil {
				assert.NotEqual(t, data.backing, storage+"/"+claim.ClaimName, "pod %s mounts the twin", beside.Name)
			}
		}
	}

	db.scale(t, 0)
	home.kubectl(t, "delete", "pvc", db.claim(0), "-n", shop)
	data.requireGone(t)
}
