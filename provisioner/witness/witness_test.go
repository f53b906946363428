package witness

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

func TestAVolumeIsAttachedUnderEitherOfItsNames(t *testing.T) {
	attachment := func(volume, node string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume + node}, Spec: storagev1.VolumeAttachmentSpec{
			NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(volume)}}}
	}
	for name, row := range map[string]struct {
		volume    string
		movers    map[string]bool
		elsewhere bool
		nodes     []string
		attached  bool
	}{
		"for a pod, under the virtual volume's":    {volume: "pvc-u1", nodes: []string{"home-1"}, attached: true},
		"for a pod, under the real volume's":       {volume: "real-1", nodes: []string{"home-1"}},
		"where the mover is, for that as well":     {volume: "pvc-u1", movers: map[string]bool{"home-1": true}, attached: true},
		"where the mover is, for that alone":       {volume: "real-1", movers: map[string]bool{"home-1": true}},
		"for a mover that had no node a while ago": {volume: "real-1", movers: map[string]bool{"": true}},
		"in a remote cluster":                      {volume: "real-1", elsewhere: true, nodes: []string{"home-1"}},
		"another volume":                           {volume: "real-2"},
	} {
		t.Run(name, func(t *testing.T) {
			u := Users{movers: row.movers, Volume: Volume{
				At: site.Site{Home: !row.elsewhere,
					Access: remote.Access{Client: fake.NewClientset(attachment(row.volume, "home-1"))}},
				Virtual: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"}},
				Real:    &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-1"}},
			}}
			require.NoError(t, u.ReadAttachments(t.Context()))
			assert.Equal(t, row.attached, u.Attached)
			var nodes []string
			for _, node := range row.nodes {
				nodes = append(nodes, "node "+node+", which it is attached to")
			}
			assert.Equal(t, nodes, u.Attachments)
		})
	}
}

func TestAPodInARemoteClusterIsKnownByWhetherARemoteAgentHasMadeIt(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: "u1"}}
	assert.False(t, PodOf("west", home.NewPod(pod)).Hosted)
	pod.Labels = map[string]string{keys.HomeID: "h1", keys.PodUID: "p1"}
	assert.True(t, PodOf("west", home.NewPod(pod)).Hosted)
	assert.False(t, PodOf(keys.Home, home.NewPod(pod)).Hosted, "nobody ends pods of home")
}
