package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// Backup copies all that the cluster has stored and returns the folder of the copy,
// which goes with the cluster. The API server is away meanwhile.
func (c *Cluster) Backup(ctx context.Context) (folder string, err error) {
	if folder, err = os.MkdirTemp(c.dir.path, "backup-"); err != nil {
		return "", fmt.Errorf("make the folder of a backup: %w", err)
	}
	err = c.withoutStore(ctx, func() error { return os.CopyFS(folder, os.DirFS(c.dir.file("etcd"))) })
	return folder, err
}

// Restore puts back what Backup copied: what was stored since then never was. The API
// server is away meanwhile, and what runs beside it reads all anew; who else watches
// it is on their own.
func (c *Cluster) Restore(ctx context.Context, folder string) error {
	return c.withoutStore(ctx, func() error {
		if err := os.RemoveAll(c.dir.file("etcd")); err != nil {
			return err
		}
		return os.CopyFS(c.dir.file("etcd"), os.DirFS(folder))
	})
}

// Forget has etcd forget all history and the API server too, which is away meanwhile:
// who watched it from an earlier version is told that this is gone.
func (c *Cluster) Forget(ctx context.Context) error {
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.askEtcd(ctx, "range", `{"key":"AA=="}`, &now); err != nil {
		return err
	}
	if err := c.askEtcd(ctx, "compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, now.Header.Revision), &now); err != nil {
		return err
	}
	return errors.Join(c.halt(apiServer), c.StartAPIServer(ctx))
}

// withoutStore does something while etcd and the API server are stopped.
func (c *Cluster) withoutStore(ctx context.Context, do func() error) error {
	if err := errors.Join(c.halt(apiServer), c.halt(etcd)); err != nil {
		return err
	}
	if err := do(); err != nil {
		return fmt.Errorf("copy the data of cluster %s: %w", c.Name(), err)
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

func (c *Cluster) askEtcd(ctx context.Context, what, body string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.ports.etcd.address()+"/v3/kv/"+what, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask etcd of cluster %s: %w", c.Name(), err)
	}
	response, err := probe.Do(request)
	if err != nil {
		return fmt.Errorf("ask etcd of cluster %s: %w", c.Name(), err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd of cluster %s answers %s to %s", c.Name(), response.Status, what)
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("read the answer of etcd of cluster %s: %w", c.Name(), err)
	}
	return nil
}
