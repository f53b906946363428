package reselect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestWhichChoicesAreTakenBack(t *testing.T) {
	class := func(provisioner string, annotations map[string]string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "plain", Annotations: annotations}, Provisioner: provisioner}
	}
	node := func(cluster string) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
		if cluster != "" {
			node.Labels = map[string]string{keys.Cluster: cluster}
		}
		return node
	}
	plain := class("disk.example.com", nil)
	for name, c := range map[string]struct {
		class  *storagev1.StorageClass
		node   *corev1.Node
		marks  map[string]string
		gone   bool
		expect string
	}{
		"a remote cluster":           {class: plain, node: node("west"), expect: "west"},
		"a node of home":             {class: plain, node: node("")},
		"a node that is not known":   {class: plain},
		"a class that is not known":  {node: node("west")},
		"a virtual class":            {class: class(keys.Driver, nil), node: node("west")},
		"a claim marked for it":      {class: plain, node: node("west"), marks: map[string]string{keys.UsableIn: "west"}},
		"a claim marked for another": {class: plain, node: node("west"), marks: map[string]string{keys.UsableIn: "east"}, expect: "west"},
		"a class marked":             {class: class("disk.example.com", map[string]string{keys.UsableIn: "*"}), node: node("west")},
		"a claim that is going":      {class: plain, node: node("west"), gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Annotations: c.marks}}
			claim.Spec.StorageClassName = ptr.To("plain")
			if c.gone {
				claim.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			assert.Equal(t, c.expect, Lost(claim, c.class, c.node))
		})
	}
}

func TestTheSameChoiceIsTakenBackEverMoreSeldom(t *testing.T) {
	assert.Equal(t, time.Second, pause(0))
	assert.Equal(t, 8*time.Second, pause(3))
	assert.Equal(t, time.Minute, pause(6))
	assert.Equal(t, time.Minute, pause(1000))
}
