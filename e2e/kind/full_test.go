package kind

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// tight is a virtual class whose volumes have no bound at home, where they are
// directories, and one in west, where they are file systems of the claim's size. One of
// the real classes that it allows does not exist.
const tight = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: e2e-tight}
provisioner: lodestone.dev
volumeBindingMode: WaitForFirstConsumer
parameters: {lodestone.dev/local-class: standard, lodestone.dev/remote-class: disk, lodestone.dev/classes: "standard,disk,e2e-ghost"}
`

// TestAMoveToATargetThatIsFullLeavesTheApplicationAtHome: west's file system has 512 MiB.
func TestAMoveToATargetThatIsFullLeavesTheApplicationAtHome(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, tight)
	t.Cleanup(func() {
		_, _ = home.try(context.Background(), "", "delete", "storageclass", "e2e-tight", "--ignore-not-found")
	})
	// The last thing that it does may be too much.
	db := keepers{namespace: shop, name: "db", class: "e2e-tight", size: "512Mi", replicas: 1, spec: atHome,
		leave: "! [ -e /tmp/hoard ] || dd if=/dev/urandom of=/data/late bs=1M count=300 2>/dev/null"}
	home.apply(t, db.manifest())
	db.unpin(t)
	data := volumeOf(t, shop, db.claim(0))
	before := data.sum(t, "blob")
	pod := db.ready(t, 1)[0]
	requireUntouched := func() {
		t.Helper()
		now := db.ready(t, 1)[0]
		assert.Equal(t, pod.UID, now.UID, "the application was not stopped")
		assert.Zero(t, now.Status.ContainerStatuses[0].RestartCount)
		assert.Equal(t, data, volumeOf(t, shop, db.claim(0)))
		assert.Equal(t, before, data.sum(t, "blob"))
	}

	t.Log("The real class does not exist.")
	said := requireRefused(t, move(t, shop, db.claim(0), "west", func(spec *v1alpha1.VolumeMoveSpec) { spec.ClassName = "e2e-ghost" }))
	assert.Contains(t, said, "e2e-ghost")
	requireUntouched()

	t.Log("The files are more than there is room for.")
	shell(t, shop, pod.Name, "dd if=/dev/zero of=/data/large bs=1M count=600 2>/dev/null")
	said = requireRefused(t, move(t, shop, db.claim(0), "west"))
	assert.Contains(t, said, "the target is too small")
	requireUntouched()

	t.Log("They become so at the last moment.")
	shell(t, shop, pod.Name, "dd if=/dev/urandom of=/data/large bs=1M count=250 2>/dev/null; touch /tmp/hoard")
	said = requireRefused(t, move(t, shop, db.claim(0), "west"))
	assert.Contains(t, said, "full")
	next := db.ready(t, 1)[0]
	assert.Equal(t, home.node, next.Spec.NodeName)
	assert.Equal(t, data, volumeOf(t, shop, db.claim(0)))
	assert.Equal(t, before, data.sum(t, "blob"))
	assert.Equal(t, "314572800\n", shell(t, shop, next.Name, "wc -c </data/late"))
	assert.Len(t, data.starts(t), 3)
}

func TestManySmallFilesAreMoved(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: atHome}
	home.apply(t, db.manifest())
	db.unpin(t)
	const sum = "cd /data/many && for d in *; do (cd $d && cat *); done | sha256sum && find . | wc -l"
	directories := 20
	if thorough() {
		directories = 100
	}
	shell(t, shop, db.pod(0), fmt.Sprintf(`mkdir /data/many && cd /data/many
d=0; while [ $d -lt %d ]; do
  mkdir d$d; i=0; while [ $i -lt 1000 ]; do echo $d $i $i $i $i >d$d/file-$i; i=$((i+1)); done; d=$((d+1))
done; sync`, directories))
	before := shell(t, shop, db.pod(0), sum)
	began := time.Now()

	done := requireMoved(t, move(t, shop, db.claim(0), "west"))

	t.Logf("%d,000 small files: moved in %s, of which pods could not use them for %s", directories, time.Since(began).Round(time.Second), done.Status.Downtime.Duration)
	db.ready(t, 1)
	assert.Equal(t, before, shell(t, shop, db.pod(0), sum))
}

// thorough says whether tests that take many minutes run, too.
func thorough() bool { return os.Getenv("E2E_LONG") != "" }
