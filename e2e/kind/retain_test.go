package kind

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retained is a virtual class whose volumes outlive their claims.
const retained = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: e2e-retain}
provisioner: lodestone.dev
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Retain
`

func TestFilesOutliveTheClaimAndItsNamespaceWithPolicyRetain(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, retained)
	t.Cleanup(func() {
		_, _ = home.try(context.Background(), "", "delete", "storageclass", "e2e-retain", "--ignore-not-found")
	})
	db := keepers{namespace: shop, name: "db", class: "e2e-retain"}
	volumes, index := spread(t, db)
	before := map[string]string{}
	for name, data := range volumes {
		before[name] = data.sum(t, "blob")
	}

	db.scale(t, 0)
	for name := range volumes {
		home.kubectl(t, "delete", "pvc", db.claim(index[name]), "-n", shop)
	}
	removeNamespace(t, home, shop)

	consistently(t, "the files stay", func() bool {
		for _, data := range volumes {
			if there, err := data.there(t.Context()); err != nil || !there {
				return false
			}
		}
		return true
	})
	for name, data := range volumes {
		assert.Equal(t, before[name], data.sum(t, "blob"), "in %s", name)
		_, err := data.in.client.CoreV1().PersistentVolumes().Get(t.Context(), data.real, metav1.GetOptions{})
		require.NoError(t, err, "the real volume in %s", name)
	}

	t.Log("Made Delete afterwards, they go.")
	for _, data := range volumes {
		home.kubectl(t, "patch", "pv", data.virtual, "-p", `{"spec": {"persistentVolumeReclaimPolicy": "Delete"}}`)
	}
	for _, data := range volumes {
		data.requireGone(t)
	}
}
