package tenancy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestAHostileClusterPutsNothingIntoAVolume has a hostile cluster make a volume, and
// say of it all that could reach something of home if it were believed.
func TestAHostileClusterPutsNothingIntoAVolume(t *testing.T) {
	user := newTenant(t)
	claim := user.claim("data", nil)
	_, volume := inEvil(t, user, claim, "evil")

	ref := "evil/" + user.namespace + "/data/shadow"
	assert.Equal(t, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: keys.Driver, VolumeHandle: ref}}, volume.Spec.PersistentVolumeSource)
	assert.Empty(t, volume.Spec.MountOptions)
	assert.Equal(t, map[string]string{keys.Cluster: "evil"}, volume.Labels)
	assert.Equal(t, ref, volume.Annotations[keys.Backing])
	require.Len(t, volume.Spec.NodeAffinity.Required.NodeSelectorTerms, 1)
	for _, e := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions {
		assert.Equal(t, keys.Cluster, e.Key)
		assert.Equal(t, []string{"evil"}, e.Values)
	}
	assert.Equal(t, "pvc-"+string(claim.UID), volume.Name)
	assert.Equal(t, claim.UID, volume.Spec.ClaimRef.UID)
	assert.Equal(t, fabric.Class, volume.Spec.StorageClassName)
}

// inEvil has a hostile cluster make the volume of claim "data".
func inEvil(t *testing.T, user tenant, claim *corev1.PersistentVolumeClaim, id string) (*evil, *corev1.PersistentVolume) {
	t.Helper()
	there := newEvil(t, id, telling(lies(t, claim)))
	_, err := bed.Home.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: id + "-1", Labels: map[string]string{keys.Cluster: id}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = bed.Home.Client().CoreV1().Nodes().Delete(context.Background(), id+"-1", metav1.DeleteOptions{})
	})
	register(t, there)
	require.NoError(t, bed.AwaitReady(t.Context(), id, metav1.ConditionTrue))

	// Only now is the node chosen: of a cluster that is not known the choice would be taken back.
	_, err = user.home.CoreV1().PersistentVolumeClaims(user.namespace).Patch(t.Context(), "data", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q}}}`, keys.SelectedNode, id+"-1", keys.Routed, id), metav1.PatchOptions{})
	require.NoError(t, err)
	_, volume := user.bound("data")
	letGo(t, volume.Name)
	return there, volume
}

// telling answers with these objects, by kind.
func telling(objects map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/persistentvolumeclaims/data") {
			object(w, typed(objects["PersistentVolumeClaim"], "PersistentVolumeClaim", "v1"))
			return
		}
		lists(func(kind string) []string {
			if text, ok := objects[kind]; ok {
				return []string{text}
			}
			return nil
		})(w, r)
	}
}

// lies are the objects, by kind, that a hostile cluster shows for a claim: a shadow
// as home would have made it, and a volume that points at all sorts of things.
func lies(t *testing.T, claim *corev1.PersistentVolumeClaim) map[string]string {
	t.Helper()
	return map[string]string{
		"StorageClass": `{"metadata":{"name":"fast","uid":"c","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"disk.evil.test","volumeBindingMode":"Immediate"}`,
		"PersistentVolumeClaim": fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"data","uid":"shadow","resourceVersion":"9","labels":{%q:%q,%q:%q},
			"annotations":{%q:%q,%q:"true"},"finalizers":[%q]},
			"spec":{"volumeName":"real","storageClassName":"fast","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}},
			"status":{"phase":"Bound","accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"}}}`,
			claim.Namespace, keys.ClaimUID, claim.UID, keys.HomeID, homeID(t), keys.Claim, claim.Namespace+"/"+claim.Name, keys.Unpublished, keys.BackingFinalizer),
		"PersistentVolume": fmt.Sprintf(`{"metadata":{"name":"real","uid":"real","labels":{"a":"b"},"annotations":{%q:"home/lodestone-storage/x/y"}},
			"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],
			"hostPath":{"path":"/etc"},"local":{"path":"/"},"mountOptions":["suid"],"storageClassName":"home-now","persistentVolumeReclaimPolicy":"Delete",
			"csi":{"driver":"disk.home.test","volumeHandle":"another","nodePublishSecretRef":{"namespace":"kube-system","name":"token"}},
			"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["home-1"]}]}]}},
			"claimRef":{"namespace":%q,"name":"data","uid":"shadow"}},"status":{"phase":"Bound"}}`, keys.Backing, claim.Namespace),
	}
}

// letGo takes a volume away at the end, as its administrator would: a hostile cluster
// never ends what it is asked to delete.
func letGo(t *testing.T, volume string) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := bed.Home.Kubectl(ctx, "", "patch", "pv", volume, "--type=merge", "-p", `{"metadata":{"finalizers":null},"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
		require.NoError(t, err)
		require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumes().Delete(ctx, volume, metav1.DeleteOptions{}))
	})
}
