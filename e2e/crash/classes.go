package crash

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The virtual classes of the cases.
const (
	// In west, the real class of now binds at once, that of wait when a pod there
	// uses the claim.
	now  = "crash-now"
	wait = "crash-wait"
	// retain keeps its volumes.
	retain = "crash-retain"
	// stuck has real classes that never make a volume, moved has one in west.
	stuck = "crash-stuck"
	moved = "crash-moved"
	// full has a real class at home without room on fullNode.
	full     = "crash-full"
	fullNode = "home-2"
	// choice lets claims ask for any real class of west.
	choice = "crash-choice"
	// either has a real class at home, and one in west that binds at once.
	either = "crash-either"
)

// Real classes that the test bed does not have.
const (
	homeStuck = "home-stuck"
	westStuck = "west-stuck"
	homeFull  = "home-full"
)

func (w *World) makeClasses(ctx context.Context) error {
	home, west := w.Bed.HomeStorage, w.Bed.WestStorage
	home.SetClass(homeStuck, instant.Behavior{Never: true})
	west.SetClass(westStuck, instant.Behavior{Never: true})
	home.SetClass(homeFull, instant.Behavior{FullNodes: []string{fullNode}})
	for _, class := range []*storagev1.StorageClass{home.Class(homeStuck, storagev1.VolumeBindingImmediate), home.Class(homeFull, storagev1.VolumeBindingWaitForFirstConsumer)} {
		if _, err := w.Bed.Home.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make class %s at home: %w", class.Name, err)
		}
	}
	if _, err := w.Bed.West.Client().StorageV1().StorageClasses().Create(ctx, west.Class(westStuck, storagev1.VolumeBindingImmediate), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make class %s in west: %w", westStuck, err)
	}
	for name, real := range map[string][2]string{
		now: {fabric.HomeWait, fabric.WestNow}, wait: {fabric.HomeWait, fabric.WestWait}, retain: {fabric.HomeWait, fabric.WestNow},
		stuck: {homeStuck, westStuck}, moved: {fabric.HomeWait, westStuck}, full: {homeFull, fabric.WestNow},
	} {
		class := newClass(name, map[string]string{keys.LocalClass: real[0], keys.RemoteClass: real[1], keys.Carry: "team,note"})
		if name == retain {
			class.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain)
		}
		if _, err := w.Bed.Home.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make class %s: %w", name, err)
		}
	}
	return nil
}

func newClass(name string, parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: keys.Driver,
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		ReclaimPolicy:        ptr.To(corev1.PersistentVolumeReclaimDelete),
		AllowVolumeExpansion: ptr.To(true),
		Parameters:           parameters,
	}
}

// makeClass makes a virtual class.
func (w *World) makeClass(ctx context.Context, name string, parameters map[string]string) error {
	if _, err := w.Bed.Home.Client().StorageV1().StorageClasses().Create(ctx, newClass(name, parameters), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make class %s: %w", name, err)
	}
	return nil
}
