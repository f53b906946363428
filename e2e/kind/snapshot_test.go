package kind

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAClaimMadeFromASnapshotHasTheFilesOfThatTime(t *testing.T) {
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			db := keepers{namespace: shop, name: "db", class: diskClass, size: "512Mi", replicas: 1, spec: side}
			home.apply(t, db.manifest())
			pod := db.ready(t, 1)[0]
			source := volumeOf(t, shop, db.claim(0))
			shell(t, shop, pod.Name, "echo old >/data/note && sync")

			home.apply(t, fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {namespace: %s, name: friday}
spec: {source: {persistentVolumeClaimName: %s}}
`, shop, db.claim(0)))
			eventually(t, "the snapshot is ready", func(c *assert.CollectT) {
				status, err := home.try(t.Context(), "", "get", "volumesnapshot", "friday", "-n", shop, "-o", "jsonpath={.status.readyToUse} {.status.error.message}")
				require.NoError(c, err)
				assert.Equal(c, "true ", status)
			})
			shell(t, shop, pod.Name, "echo new >/data/note && sync")

			// Its pod may run anywhere; the data says where.
			home.apply(t, fmt.Sprintf(reader, shop, "restored", `  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 512Mi}}
  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: friday}
`, image))
			readyPod(t, shop, "restored")

			assert.Equal(t, "old\n", shell(t, shop, "restored", "cat /data/note"))
			assert.Equal(t, "new\n", shell(t, shop, pod.Name, "cat /data/note"))
			assert.Equal(t, shell(t, shop, pod.Name, "sha256sum /data/blob"), shell(t, shop, "restored", "sha256sum /data/blob"))
			assert.Equal(t, source.in, volumeOf(t, shop, "restored").in)
		})
	}
}
