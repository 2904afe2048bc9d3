import { pythonMissing } from '../support/python.js';
import { pythonDriver } from './python-driver.js';
import { conformance } from './suite.js';

conformance(pythonDriver('async'), pythonMissing());
