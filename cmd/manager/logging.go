package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

type logOptions struct{ format, level string }

func (o *logOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.format, "log-format", "json", "json or text")
	f.StringVar(&o.level, "log-level", "info", "error, info, debug, or a number from 0 to 127: higher logs more")
}

func (o *logOptions) validate() error {
	_, err := o.logger(io.Discard)
	return err
}

// levels are those that have a name.
var levels = map[string]zapcore.Level{"error": zapcore.ErrorLevel, "info": zapcore.InfoLevel, "debug": zapcore.DebugLevel}

// logger writes to w. Kubernetes objects appear in it by name only, at every
// level: the encoder of controller-runtime sees to that.
func (o *logOptions) logger(w io.Writer) (logr.Logger, error) {
	level, named := levels[o.level]
	if !named {
		// A verbosity of logr is a negative level of zap, which has room for 127.
		verbosity, err := strconv.ParseInt(o.level, 10, 8)
		if err != nil || verbosity < 0 {
			return logr.Logger{}, fmt.Errorf("--log-level: %q is not a level: use error, info, debug, or a number from 0 to 127", o.level)
		}
		level = zapcore.Level(-verbosity)
	}
	times := func(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.ISO8601TimeEncoder }
	encoder := map[string]zap.Opts{"json": zap.JSONEncoder(times), "text": zap.ConsoleEncoder(times)}[o.format]
	if encoder == nil {
		return logr.Logger{}, fmt.Errorf("--log-format: %q is not a format: use json or text", o.format)
	}
	at := uberzap.NewAtomicLevelAt(level)
	// Errors are values here: their text tells where they come from, while the stack
	// of the line that logs them is that of controller-runtime, always the same.
	return zap.New(encoder, zap.Level(at), zap.StacktraceLevel(zapcore.PanicLevel), zap.WriteTo(w)), nil
}
