package kind

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// eventually waits until all that check asserts is so.
func eventually(t *testing.T, message string, check func(c *assert.CollectT)) {
	t.Helper()
	require.EventuallyWithT(t, check, long, poll, message)
}

// consistently checks that something is so again and again for a while.
func consistently(t *testing.T, message string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(steady); time.Now().Before(end); time.Sleep(poll) {
		require.True(t, check(), message)
	}
}

// namespace makes a namespace at home whose pods may run in west. It is gone before
// the test ends; the one in west, which is given back some time later, before the
// suite ends.
func namespace(t *testing.T) string {
	t.Helper()
	needsClusters(t)
	made, err := home.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: map[string]string{keys.Offload: keys.OffloadEnabled}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		// A failed test leaves it: it is part of what explains why.
		if t.Failed() {
			t.Logf("Namespace %s is left as it is.", made.Name)
			return
		}
		removeNamespace(t, home, made.Name)
	})
	return made.Name
}

// prefix is that of all namespaces of the suite.
const prefix = "e2e-"

// removeNamespace deletes a namespace of a cluster with all that is in it.
func removeNamespace(t *testing.T, in *cluster, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	err := in.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	eventually(t, "namespace "+name+" is gone in "+in.name, func(c *assert.CollectT) {
		assert.NoError(c, gone(in.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})))
	})
}

// leftovers returns, once nothing changes that any more, what the suite has left in
// the clusters: namespaces, volumes, and directories, images and devices of volumes.
func leftovers(ctx context.Context) (left []string) {
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(poll) {
		left = nil
		for _, c := range []*cluster{home, west} {
			namespaces, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return []string{err.Error()}
			}
			for _, namespace := range namespaces.Items {
				if strings.HasPrefix(namespace.Name, prefix) {
					left = append(left, "namespace "+namespace.Name+" in "+c.name)
				}
			}
			volumes, err := c.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return []string{err.Error()}
			}
			for _, volume := range volumes.Items {
				left = append(left, "volume "+volume.Name+" in "+c.name)
			}
			files, err := c.inNode(ctx, "sh", "-c", "! test -e /var/local-path-provisioner || ls /var/local-path-provisioner; "+
				"ls "+sharedDirectory+"; ls "+disks+"/volumes "+disks+"/snapshots | grep json; losetup --list --noheadings --output BACK-FILE | grep -o '"+disks+"[^ ]*'; true")
			if err != nil {
				return []string{err.Error()}
			}
			for _, file := range strings.Fields(files) {
				left = append(left, "file or directory "+file+" in "+c.node)
			}
		}
		if len(left) == 0 {
			return nil
		}
	}
	return left
}
