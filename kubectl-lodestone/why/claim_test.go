package why

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestWhyAClaimWaits(t *testing.T) {
	for name, test := range map[string]struct {
		claim   Claim
		setting Setting
		want    string
		fine    bool
	}{
		"it does not exist": {
			claim: claim(absent), setting: setting(),
			want: `claim "data" does not exist: create it`,
		},
		"no pod uses it": {
			claim: claim(), setting: setting(),
			want: `claim "data" waits for a pod that uses it: its volume is made where that pod is scheduled`,
		},
		"its pod has no node": {
			claim: claim(func(c *Claim) { c.Pods = []corev1.Pod{*pod()} }), setting: setting(),
			want: `claim "data" waits until its pod "web-1" has a node: kubectl lodestone why pod web-1 -n shop`,
		},
		"west refused it": {
			claim: claim(refusedBy("west", "QuotaExceeded", "the quota of namespace shop in cluster west leaves no room")), setting: setting(),
			want: `claim "data" was refused by cluster "west": the quota of namespace shop in cluster west leaves no room; that place is tried again after 03:05:05`,
		},
		"a refusal that has ended": {
			claim: claim(refusedBy("west", "QuotaExceeded", "no room")), setting: setting(func(s *Setting) { s.Now = now.Add(time.Hour) }),
			want: `claim "data" waits for a pod that uses it: its volume is made where that pod is scheduled`,
		},
		"its class is invalid": {
			claim: claim(said("InvalidClaim", "parameter lodestone.dev/clusterz is not known")), setting: setting(),
			want: `claim "data" cannot be served: parameter lodestone.dev/clusterz is not known`,
		},
		"its class was invalid long ago": {
			claim: claim(func(c *Claim) { c.Events = []corev1.Event{event("InvalidClaim", "mended since", time.Hour)} }), setting: setting(),
			want: `claim "data" waits for a pod that uses it: its volume is made where that pod is scheduled`,
		},
		"its class does not exist": {
			claim: claim(func(c *Claim) { c.Class = nil }), setting: setting(),
			want: `claim "data" names storage class "lodestone", which does not exist: create the class, or the claim anew with another`,
		},
		"it has no class": {
			claim: claim(func(c *Claim) { c.Class, c.Claim.Spec.StorageClassName = nil, nil }), setting: setting(),
			want: `claim "data" has no storage class, and there is no default class: create the claim anew with one`,
		},
		"its class binds at once": {
			claim: claim(func(c *Claim) { c.Class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate) }), setting: setting(),
			want: `claim "data" is of storage class "lodestone", which binds at once: create the class anew with volumeBindingMode WaitForFirstConsumer`,
		},
		"its class is not Lodestone's": {
			claim: claim(func(c *Claim) { c.Class.Provisioner = "disk.test" }), setting: setting(),
			want: `claim "data" is of storage class "lodestone", whose provisioner is "disk.test" and not Lodestone: kubectl describe pvc says what that one does`,
		},
		"west is to make it but does not answer": {
			claim: claim(annotated(keys.SelectedNode, "west")), setting: setting(partitioned),
			want: `claim "data" is to be made in cluster "west", which cannot be used now: its API server does not answer as it should: connection refused`,
		},
		"a node of a cluster that nobody knows": {
			claim: claim(annotated(keys.SelectedNode, "west")), setting: setting(func(s *Setting) { s.Clusters = nil }),
			want: `claim "data" is to be made in cluster "west", which cannot be used now: there is no RemoteCluster "west": create it (kubectl lodestone peer)`,
		},
		"west makes it slowly": {
			claim: claim(annotated(keys.SelectedNode, "west"), said("WaitingForBacking", "waiting until claim shop/data in cluster west is bound")), setting: setting(),
			want: `claim "data" is being made in cluster "west": waiting until claim shop/data in cluster west is bound`,
		},
		"it is being made at home": {
			claim: claim(annotated(keys.SelectedNode, "home-1")), setting: setting(),
			want: `claim "data" is being made in the home cluster, for node "home-1": this takes seconds; if it lasts, see the log of the provisioner`,
		},
		"it is bound": {
			claim: claim(boundIn("west")), setting: setting(),
			want: `claim "data" is bound: its data is in cluster "west"`, fine: true,
		},
		"somebody deleted what is behind it": {
			claim: claim(boundIn("west"), said("BackingDeleted", "somebody deleted the backing claim shop/data in cluster west")), setting: setting(),
			want: `claim "data" is bound, but somebody deleted the backing claim shop/data in cluster west`,
		},
		"its condition says what is wrong": {
			claim: claim(boundIn("west"), said("BackingLost", "it was otherwise before"), func(c *Claim) {
				c.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: keys.VolumeTrouble, Status: corev1.ConditionTrue, Message: "its cluster is away"}}
			}), setting: setting(),
			want: `claim "data" is bound, but its cluster is away`,
		},
		"its backing claim waits": {
			claim: claim(boundIn("west"), said("BackingPending", "real claim shop/data in cluster west is not bound yet")), setting: setting(),
			want: `claim "data" is bound, but real claim shop/data in cluster west is not bound yet`,
		},
		"it does not grow": {
			claim: claim(boundIn("west"), func(c *Claim) {
				c.Claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("9Gi")}
				c.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
					{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue, Message: "it grows"},
					{Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "the pool is full"},
				}
			}), setting: setting(),
			want: `claim "data" is bound, but not expanded to 9Gi: the pool is full`,
		},
		"it grows": {
			claim: claim(boundIn("west"), func(c *Claim) {
				c.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue}}
			}), setting: setting(),
			want: `claim "data" is bound: its data is in cluster "west"`, fine: true,
		},
		"it is lost": {
			claim: claim(boundIn("west"), func(c *Claim) { c.Claim.Status.Phase = corev1.ClaimLost }), setting: setting(),
			want: `claim "data" has lost its volume "pvc-1": restore the data from a backup, or delete the claim`,
		},
		"it is being deleted while a pod uses it": {
			claim: claim(boundIn("west"), func(c *Claim) {
				c.Claim.DeletionTimestamp = &metav1.Time{Time: now}
				c.Pods = []corev1.Pod{*pod(on("west"))}
			}), setting: setting(),
			want: `claim "data" is being deleted and waits until no pod uses it: delete web-1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := test.claim.Of(test.setting)
			assert.Equal(t, test.want, answer.Sentence)
			assert.Equal(t, !test.fine, answer.Waiting)
			assert.NotEmpty(t, answer.Facts)
		})
	}
}
