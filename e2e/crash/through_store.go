package crash

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/store"
)

// storeSecret is the Secret of home that says how the object store is reached.
const storeSecret = "object-store"

// through has the content of all moves to and from west travel through an object store, or
// through none.
func (w *World) through(ctx context.Context, stored bool) error {
	if w.moves == nil || stored == w.stored {
		return nil
	}
	value := "null"
	if stored {
		if err := w.startStore(ctx); err != nil {
			return err
		}
		value = fmt.Sprintf(`{"secretName":%q}`, storeSecret)
	}
	if _, err := w.Bed.Remotes.Patch(ctx, "west", types.MergePatchType, []byte(`{"spec":{"moveRepository":`+value+`}}`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set the object store of west: %w", err)
	}
	w.stored = stored
	return nil
}

// startStore starts the object store, once.
func (w *World) startStore(ctx context.Context) error {
	if w.store != nil {
		return nil
	}
	programs, err := store.Build(ctx, io.Discard)
	if err != nil {
		return err
	}
	// Movers that start from now on find this restic.
	if err := programs.First(); err != nil {
		return err
	}
	folder := filepath.Join(w.Bed.Disks.Root, "object-store")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make a folder for the object store: %w", err)
	}
	if w.store, err = store.Start(ctx, programs.Server, folder); err != nil {
		return err
	}
	_, err = w.Bed.Home.Client().CoreV1().Secrets(fabric.System).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: storeSecret}, Data: w.store.Secret()}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the Secret of the object store: %w", err)
	}
	return nil
}

// emptied says what the object store keeps of a case. A mover that is killed while it ends
// leaves the key and the configuration of its repository.
func (w *World) emptied(c *Case) error {
	if w.store == nil {
		return nil
	}
	files, err := w.store.Files()
	if err != nil {
		return fmt.Errorf("look into the object store: %w", err)
	}
	for path := range files {
		if c.Fault == KillSource && (strings.HasSuffix(path, "/config") || strings.Contains(path, "/keys/")) {
			continue
		}
		for _, uid := range c.moving.uids {
			if strings.Contains(path, string(uid)) {
				return fmt.Errorf("%s is left in the object store", path)
			}
		}
	}
	return nil
}

// stored is a flow of moves whose content travels through the object store.
func (t trip) stored(name string) Flow {
	f := t.flow(name)
	f.Stored = true
	want := f.Want
	f.Want = func(w *World, c *Case, v *View) error {
		if err := want(w, c, v); err != nil {
			return err
		}
		if c.Fault == "" && c.moving.repository != "west" {
			return fmt.Errorf("the content went through the object store of %q", c.moving.repository)
		}
		return nil
	}
	return f
}
