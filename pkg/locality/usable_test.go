package locality_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

func TestAMarkListsClusters(t *testing.T) {
	for name, test := range map[string]struct {
		mark, cluster string
		want          bool
	}{
		"it is empty":               {cluster: "west"},
		"it has the cluster":        {mark: "west", cluster: "west", want: true},
		"it has it among others":    {mark: "east, west ,north", cluster: "west", want: true},
		"it has others":             {mark: "east,north", cluster: "west"},
		"it has a longer name":      {mark: "west-2", cluster: "west"},
		"it means all":              {mark: "*", cluster: "west", want: true},
		"it means all among others": {mark: "east,*", cluster: "west", want: true},
		"it has a pattern":          {mark: "w*", cluster: "west"},
		"it has empty names":        {mark: ",,", cluster: ""},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, locality.Lists(test.mark, test.cluster)) })
	}
	assert.Empty(t, locality.Mark(nil))
	assert.Equal(t, "west", locality.Mark(map[string]string{keys.UsableIn: "west"}))
	assert.Empty(t, locality.Mark(map[string]string{keys.UsableIn: strings.Repeat("west,", 1000)}), "users write it, so its size is bounded")
}

func TestWhereAClaimIsUsable(t *testing.T) {
	marked := metav1.ObjectMeta{Annotations: map[string]string{keys.UsableIn: "west"}}
	plain, virtual := &storagev1.StorageClass{Provisioner: "disk.example.com"}, &storagev1.StorageClass{Provisioner: keys.Driver}
	inWest := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: locality.Affinity("west", nil)}}
	unlabelled := &corev1.PersistentVolume{}
	labelled := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Cluster: "west"}}}
	for name, test := range map[string]struct {
		claim  metav1.ObjectMeta
		volume *corev1.PersistentVolume
		class  *storagev1.StorageClass
		want   bool
	}{
		"nothing is known but the claim":       {},
		"its class is another's":               {class: plain},
		"its class is virtual":                 {class: virtual, want: true},
		"its volume is virtual":                {volume: inWest, want: true},
		"its volume is another's":              {volume: unlabelled, class: plain},
		"its volume alone is another's":        {volume: unlabelled, class: virtual},
		"an administrator labelled its volume": {volume: labelled, class: plain, want: true},
		"it is marked":                         {claim: marked, class: plain, want: true},
		"its volume is marked":                 {volume: &corev1.PersistentVolume{ObjectMeta: marked}, class: plain, want: true},
		"its class is marked":                  {volume: unlabelled, class: &storagev1.StorageClass{ObjectMeta: marked}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: test.claim}
			assert.Equal(t, test.want, locality.UsableIn("west", claim, test.volume, test.class))
		})
	}
	assert.False(t, locality.UsableIn("east", &corev1.PersistentVolumeClaim{ObjectMeta: marked}, nil, plain), "another cluster")
}
