package main

import (
	"context"
	"fmt"
	"os"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The provisioner of fabric.HomeWait takes no time at all to make a volume. This is a driver as users have them: a CSI driver on a socket,
// beside Kubernetes' own external-provisioner.
const (
	csiDriver  = "disk.bench"
	csiClass   = "disk"
	csiVirtual = "lodestone-disk"
	csiPool    = 1 << 40 // bytes; no claim is refused
	csiHome    = "home"
)

var (
	csiYardstick = route{"CSI driver alone", csiClass, yardstick.node}
	csiLocal     = route{"CSI driver, local", csiVirtual, local.node}
)

// startDriver starts the CSI driver at home, and makes its class and a virtual one before it.
func (b *bench) startDriver(ctx context.Context) error {
	programs, err := sidecars.Build(ctx, os.Stderr)
	if err != nil {
		return fmt.Errorf("build the CSI driver: %w", err)
	}
	driver, err := sidecars.Start(ctx, b.bed.Home, programs, sidecars.Options{Name: csiDriver, Pool: csiPool})
	if err != nil {
		return fmt.Errorf("start the CSI driver: %w", err)
	}
	classes := []*storagev1.StorageClass{driver.Class(csiClass, storagev1.VolumeBindingWaitForFirstConsumer), {
		ObjectMeta:        metav1.ObjectMeta{Name: csiVirtual},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{keys.LocalClass: csiClass},
	}}
	for _, class := range classes {
		if _, err := b.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make class %s: %w", class.Name, err)
		}
	}
	return nil
}
