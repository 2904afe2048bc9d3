/** The package's programmatic entry: start a router inside another program, or read a configuration as it does. */
export { type Config, configTable, describeConfig, loadConfig } from './config/config.js';
export { AppError, ConfigError, type ErrorCode, errorCodes } from './errors.js';
export { type RunningRouter, type StartOptions, startRouter } from './main/router.js';
export { version } from './version.js';
