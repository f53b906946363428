package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/store"
)

// timed runs a command and returns how long it took.
func timed(ctx context.Context, dir, program string, arguments ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RESTIC_PASSWORD=x", "RESTIC_CACHE_DIR="+dir+"/../cache")
	began := time.Now()
	output, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("run %s: %w: %.300s", program, err, output)
	}
	return time.Since(began), nil
}

// daemon copies the source to a target with rsync, to a daemon without TLS.
func (b *bench) daemon(ctx context.Context, target string) (time.Duration, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	if err != nil {
		return 0, err
	}
	config := b.path("rsyncd.conf")
	text := "uid = 0\ngid = 0\nuse chroot = no\n[volume]\npath = " + target + "\nread only = no\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := exec.CommandContext(ctx, "rsync", "--daemon", "--no-detach", "--address=127.0.0.1", "--port="+port, "--config="+config)
	if err := server.Start(); err != nil {
		return 0, err
	}
	defer func() { stop(); _ = server.Wait() }()
	for range 100 {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return timed(ctx, b.path("source"), "rsync", "-aHAXS", "./", "rsync://127.0.0.1:"+port+"/volume/")
}

// restic backs the source up to a REST server, to a new repository or the one that is
// there, and restores it to an empty target, as a move without a record of what is there
// does.
func (b *bench) restic(ctx context.Context, target string, first bool) (time.Duration, error) {
	if first {
		if _, err := b.fresh("repository"); err != nil {
			return 0, err
		}
	}
	server, err := store.StartPlain(ctx, b.programs.Server, b.path("repository"))
	if err != nil {
		return 0, err
	}
	defer server.Stop()
	repository := "rest:http://" + server.Address + "/"
	if first {
		if _, err := timed(ctx, b.path("source"), b.yardstick, "-q", "-r", repository, "init"); err != nil {
			return 0, err
		}
	}
	backup, err := timed(ctx, b.path("source"), b.yardstick, "-q", "-r", repository, "backup", ".")
	if err != nil {
		return 0, err
	}
	restore, err := timed(ctx, b.path("source"), b.yardstick, "-q", "-r", repository, "restore", "latest", "--target", target)
	return backup + restore, err
}
